"""Reads a cluster file. TOML's own parser checks the syntax; this module adds where each field stands, so that every mistake
is told with its line. See docs/hosts.md for the format, deploy/examples/ for examples."""
import re
import sys

try:
    import tomllib
except ModuleNotFoundError:
    sys.exit("cluster: needs Python 3.11 or later")

from description import (COORDINATOR_FIELDS, FILE_FLAGS, HOST_FIELDS, KINDS, LISTEN, PATHS, ROLES, SETTINGS, WORDS, DescriptionError,
                         check_hosts, check_setting, local_host, make_host)
from placement import place

HEADER = re.compile(r"\s*(\[\[?)\s*([\w.-]+)\s*\]")
KEY = re.compile(r"\s*([\w-]+)\s*=")
# Strings and comments, blanked out before brackets are counted.
TEXT = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|#.*')
NOT_ABSOLUTE = "must begin with /, since every host reads it"
TABLES = {"host": list, "replica": list, "draft_node": list, "coordinator": dict, "flags": dict, "environment": dict,
          "catalogues": dict}


def lines_of(text):
    """{(table, index, key): line}. The first table is "". The key of a header's own line is ""."""
    found, table, index, depth = {}, "", 0, 0
    counts = {}
    for number, line in enumerate(text.splitlines(), 1):
        header = HEADER.match(line) if depth == 0 else None
        if header:
            table = header[2]
            index = counts.get(table, 0) if header[1] == "[[" else 0
            counts[table] = index + 1
            found[table, index, ""] = number
            continue
        key = KEY.match(line) if depth == 0 else None
        if key:
            found[table, index, key[1]] = number
        bare = TEXT.sub("", line)
        depth = max(0, depth + sum(map(bare.count, "[{")) - sum(map(bare.count, "]}")))
    return found


class ClusterFile:
    def __init__(self, path):
        self.path = path
        try:
            with open(path, encoding="utf8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise DescriptionError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
        try:
            self.content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
            number = line[1] if line and line[1] else len(text.splitlines())
            raise DescriptionError(f"{path}:{number}: {re.sub(r' .at .*', '', str(error))}") from error
        self.lines = lines_of(text)

    def where(self, table, index, key):
        line = self.lines.get((table, index, key)) or self.lines.get((table, index, "")) or 1
        return f"{self.path}:{line}: {table + '.' if table else ''}{key}".removesuffix(".")

    def fail(self, table, index, key, reason):
        raise DescriptionError(f"{self.where(table, index, key)}: {reason}")

    def check_fields(self, fields, kinds, table, index):
        for key, value in fields.items():
            if key not in kinds:
                self.fail(table, index, key, f"unknown; expected one of {', '.join(kinds)}")
            wanted = kinds[key] if isinstance(kinds[key], tuple) else (kinds[key],)
            if type(value) not in wanted:
                self.fail(table, index, key, f"must be {' or '.join(KINDS[kind] for kind in wanted)}, got {value!r}")

    def settings(self):
        """The settings, checked, with defaults."""
        for key, value in self.content.items():
            if key in TABLES:
                if type(value) is not TABLES[key]:
                    self.fail(key, 0, "", f"write it as {'[[%s]]' if TABLES[key] is list else '[%s]'}" % key)
            elif key not in SETTINGS:
                table = type(value) is dict or type(value) is list
                self.fail(key if table else "", 0, "" if table else key,
                          f"unknown; expected one of {', '.join((*SETTINGS, *TABLES))}")
            elif reason := check_setting(key, value):
                self.fail("", 0, key, reason)
            elif key in PATHS and value and not value.startswith("/") and value not in WORDS.get(key, ()):
                self.fail("", 0, key, f"{NOT_ABSOLUTE}, got {value!r}")
        if "target" not in self.content:
            self.fail("", 0, "target", "not given")
        given = {key: value for key, value in self.content.items() if key in SETTINGS}
        return {key: given.get(key, setting.default) for key, setting in SETTINGS.items()}

    def hosts(self):
        entries = self.content.get("host", [])
        if not entries:
            return [local_host()]
        hosts = []
        for i, fields in enumerate(entries):
            self.check_fields(fields, HOST_FIELDS, "host", i)
            if "name" not in fields:
                self.fail("host", i, "name", "not given")
            for gpu in fields["gpus"] if isinstance(fields.get("gpus"), list) else ():
                if type(gpu) not in (int, str):
                    self.fail("host", i, "gpus", f"{gpu!r} is not the number or UUID of a GPU")
            hosts.append(make_host(fields, lambda field, i=i: self.where("host", i, field)))
        check_hosts(hosts, lambda i, field: self.where("host", i, field))
        return hosts

    def places(self, table, hosts, backend):
        """[[(host, gpu or None)]]: where the ranks of each [[replica]], or each [[draft_node]], are placed."""
        by_name = {host.name: host for host in hosts}
        found = []
        for i, fields in enumerate(self.content.get(table, [])):
            self.check_fields(fields, {"on": list}, table, i)
            if not fields.get("on"):
                self.fail(table, i, "on", 'not given; expected a list such as ["HOST:0,1"] (GPUs) or ["HOST", "HOST"] (one rank each)')
            ranks = []
            for entry in fields["on"]:
                name, colon, gpus = entry.partition(":") if isinstance(entry, str) else ("", "", "")
                host = by_name.get(name)
                if host is None:
                    self.fail(table, i, "on", f"{entry!r} names no host; hosts are {', '.join(by_name)}")
                chosen = [gpu.strip() for gpu in gpus.split(",")] if colon else [None]
                for gpu in chosen:
                    if gpu is not None and gpu not in host.gpus:
                        self.fail(table, i, "on", f"host {name} has no GPU {gpu!r}; it has {', '.join(host.gpus) or 'none (gpus)'}")
                    if gpu is None and host.gpus and backend == "cuda":
                        self.fail(table, i, "on", f"{entry!r} names no GPU; expected such as {name}:{host.gpus[0]}")
                    ranks.append((host, gpu))
            if table == "draft_node" and len(ranks) != 1:
                self.fail(table, i, "on", f"a draft node is one process, got places of {len(ranks)}")
            found.append(ranks)
        return found

    def check_replicas(self, replicas, settings):
        """Settings that contradict the [[replica]] tables are mistakes. So are two ranks on one GPU."""
        used = {}
        for i, ranks in enumerate(replicas):
            if "tp" in self.content and len(ranks) != settings["tp"]:
                self.fail("replica", i, "on", f"places of {len(ranks)} ranks, but tp is {settings['tp']}")
            for host, gpu in ranks:
                if gpu is not None and (host.name, gpu) in used:
                    self.fail("replica", i, "on", f"GPU {gpu} of host {host.name} is used by replica-{used[host.name, gpu]} already")
                used[host.name, gpu] = i
        if replicas and "replicas" in self.content and settings["replicas"] != len(replicas):
            self.fail("", 0, "replicas", f"is {settings['replicas']}, but there are {len(replicas)} [[replica]] tables")

    def coordinator(self, hosts):
        """(host, listen, control port or None)"""
        fields = self.content.get("coordinator", {})
        self.check_fields(fields, COORDINATOR_FIELDS, "coordinator", 0)
        name = fields.get("host", hosts[0].name)
        chosen = [host for host in hosts if host.name == name]
        if not chosen:
            self.fail("coordinator", 0, "host", f"{name!r} names no host; hosts are {', '.join(host.name for host in hosts)}")
        listen = fields.get("listen", "127.0.0.1:8000")
        match = LISTEN.fullmatch(listen)
        if not match or not 1 <= int(match[2]) <= 65535:
            self.fail("coordinator", 0, "listen", f"expected address:port, got {listen!r}")
        port = fields.get("control_port")
        if port is not None and not 1 <= port <= 65535:
            self.fail("coordinator", 0, "control_port", f"must be between 1 and 65535, got {port}")
        return chosen[0], listen, port

    def flags(self):
        fields = self.content.get("flags", {})
        self.check_fields(fields, {role: list for role in ROLES}, "flags", 0)
        for role, flags in fields.items():
            for flag in flags:
                if type(flag) is not str or not re.match(r"--[a-z]", flag):
                    self.fail("flags", 0, role, f"expected flags such as \"--log_level=debug\", got {flag!r}")
                name, _, value = flag[2:].partition("=")
                if name in FILE_FLAGS and value and not value.startswith("/"):
                    self.fail("flags", 0, role, f"--{name} {NOT_ABSOLUTE}, got {value!r}")
        return {role: tuple(fields.get(role, ())) for role in ROLES}

    def catalogues(self):
        """What gives every process the catalogues: a list of flags."""
        fields = self.content.get("catalogues", {})
        for name, file in fields.items():
            if type(file) is not str or not file.startswith("/") or "," in name + file or "=" in name:
                self.fail("catalogues", 0, name, f"expected NAME = \"/a/file\", got {file!r}")
        return (f"--catalogues={','.join(f'{name}={file}' for name, file in fields.items())}",) if fields else ()

    def environment(self):
        fields = self.content.get("environment", {})
        for name, value in fields.items():
            if not re.fullmatch(r"[A-Za-z_]\w*", name) or type(value) is not str or "\0" in value:
                self.fail("environment", 0, name, f"expected NAME = \"text\", got {value!r}")
        return dict(fields)


def as_given(settings, hosts, flags):
    """A draft is looked for by nobody."""
    return dict(settings, draft=None if settings["draft"] in WORDS["draft"] else settings["draft"]), ()


def read_cluster_file(path, choose=as_given):
    """The Cluster that the file describes. DescriptionError names its first mistake. choose(settings, hosts, flags): the settings with
    the draft that is meant, and lines about it."""
    file = ClusterFile(path)
    settings = file.settings()
    hosts = file.hosts()
    given = settings["drafts"]
    replicas = file.places("replica", hosts, settings["backend"])
    drafts = file.places("draft_node", hosts, settings["backend"])
    file.check_replicas(replicas, settings)
    if drafts and settings["draft"] in (None, "none"):
        file.fail("draft_node", 0, "", "a draft node needs `draft`, the folder of its model")
    if drafts and given is not None and given != len(drafts):
        file.fail("", 0, "drafts", f"is {given}, but there are {len(drafts)} [[draft_node]] tables")
    flags = file.flags()
    flags["all"] += file.catalogues()
    settings, said = choose(settings, hosts, flags)
    if drafts and settings["draft"] is None:
        file.fail("draft_node", 0, "", " ".join(["a draft node needs a draft;", *said[-1:]]))
    return place(settings, hosts, file.coordinator(hosts), replicas, drafts, flags, file.environment(),
                 lambda field: file.where("", 0, field), said)
