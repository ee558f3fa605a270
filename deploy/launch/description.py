"""What a cluster consists of: hosts, and which host and GPU each process gets. Read from a cluster file (TOML), a host file,
or the options of cluster.sh. Every mistake is a DescriptionError that names file, line and field. See docs/hosts.md."""
import dataclasses
import os
import re
import socket
import typing


class DescriptionError(Exception):
    """A mistake in the description. The message names where it is."""


@dataclasses.dataclass(frozen=True)
class Host:
    name: str                # as the agent (ssh) knows it
    address: str             # by which the other hosts reach it
    gpus: tuple[str, ...]    # as CUDA_VISIBLE_DEVICES names them; (): unknown or none
    slots: typing.Optional[int]   # target ranks and draft nodes that it takes, when it has no GPUs; None: any number
    cores: typing.Optional[int]   # None: unknown


@dataclasses.dataclass(frozen=True)
class Part:
    """The ranks of a replica, or the draft node, on one host."""
    host: Host
    ranks: int
    gpus: tuple[str, ...]  # one of each rank; (): not bound


@dataclasses.dataclass(frozen=True)
class Cluster:
    settings: dict                                # by the names of SETTINGS
    hosts: tuple[Host, ...]
    coordinator: Host
    replicas: tuple[tuple[Part, ...], ...]        # the leader is in the first part
    drafts: tuple[Part, ...]
    flags: dict[str, tuple[str, ...]]             # of "all", "coordinator", "worker", "draft"
    environment: dict[str, str]                   # of every process
    notes: tuple[str, ...]                        # what an operator should know of the placement
    own_drafts: bool = False                      # replicas grow drafts in their leaders' processes
    states: bool = False                          # the draft takes hidden states of the target

    def draft_nodes_take_states(self):
        return self.states and len(self.drafts) > 0


@dataclasses.dataclass(frozen=True)
class Setting:
    kind: type
    default: object = None
    least: int = 0
    choices: tuple[str, ...] = ()


# The settings of a cluster file's first table. An option of cluster.sh has the same name with '-' instead of '_'.
SETTINGS = {
    "target": Setting(str),
    "draft": Setting(str),
    "tp": Setting(int, 1, least=1),
    "replicas": Setting(int, 1, least=1),
    "drafts": Setting(int),       # draft nodes; 0: no drafts by a model; not given: 1, or none if leaders run the draft
    "draft_in": Setting(str, "auto", choices=("auto", "worker", "nodes")),
    "draft_kind": Setting(str, "auto", choices=("auto", "model", "head")),
    "dtype": Setting(str, "auto"),
    "kv_dtype": Setting(str, choices=("auto", "int8")),
    "backend": Setting(str, "cpu", choices=("cpu", "cuda")),
    "communicator": Setting(str, choices=("auto", "shm", "mpi", "nccl", "oneshot", "host")),
    "exact": Setting(bool, False),
    "kv_bytes": Setting(int),
    "draft_kv_bytes": Setting(int),
    "threads": Setting(int),
    "name": Setting(str),
    "stuck_after": Setting(int),
    "tuning_cache": Setting(str),
    "chat_template": Setting(str),
    "cluster_key": Setting(str),  # a file, the same on every host; "none"; not given: cluster.sh up makes one
    "bin": Setting(str),
}
PATHS = ("target", "draft", "tuning_cache", "cluster_key", "bin")  # settings that name a file or a folder
WORDS = {"draft": ("auto", "none"), "cluster_key": ("none",)}  # what they may say instead
FILE_FLAGS = ("tls_cert_file", "tls_key_file", "admin_keys_file", "api_keys_file")
HOST_FIELDS = {"name": str, "address": str, "gpus": (int, list), "slots": int, "cores": int}
COORDINATOR_FIELDS = {"host": str, "listen": str, "control_port": int}
ROLES = ("all", "coordinator", "worker", "draft")
NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@-]*")  # never an option of the agent
LISTEN = re.compile(r"([\w.:\[\]-]+):(\d{1,5})")
KINDS = {str: "a text", int: "a number", bool: "true or false", list: "a list", dict: "a table"}
LOCAL = "localhost"


def check_setting(name, value):
    """What is wrong with the value of a setting, or None."""
    setting = SETTINGS[name]
    if type(value) is not setting.kind:
        return f"must be {KINDS[setting.kind]}, got {value!r}"
    if setting.kind is int and not setting.least <= value < 10**18:
        return f"must be at least {setting.least}, got {value}"
    if setting.choices and value not in setting.choices:
        return f"must be {', '.join(setting.choices[:-1])} or {setting.choices[-1]}, got {value!r}"
    return None


def is_local(host):
    return host.name in (LOCAL, socket.gethostname(), socket.getfqdn())


def resolve(name, where):
    """The IPv4 address of a host, as this host finds it."""
    try:
        return socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0]
    except OSError as error:
        raise DescriptionError(f"{where}: {name} has no IPv4 address here ({error}); give the host's address") from error


def make_host(fields, where):
    """where(field) is the place of a field in the file."""
    name = fields["name"]
    if not NAME.fullmatch(name):
        raise DescriptionError(f"{where('name')}: {name!r} is not the name of a host")
    for field in ("slots", "cores"):
        if fields.get(field, 1) < 1:
            raise DescriptionError(f"{where(field)}: must be at least 1, got {fields[field]}")
    gpus = fields.get("gpus", ())
    if isinstance(gpus, int):
        if not 0 <= gpus <= 1024:
            raise DescriptionError(f"{where('gpus')}: a number of GPUs or a list of them, got {gpus}")
        gpus = range(gpus)
    gpus = tuple(str(gpu) for gpu in gpus)
    for gpu in gpus:
        if not re.fullmatch(r"[\w.:/-]+", gpu) or gpus.count(gpu) > 1:
            raise DescriptionError(f"{where('gpus')}: {gpu!r} is given twice or is not the number or UUID of a GPU")
    address = resolve(fields.get("address", name), where("address"))
    return Host(name, address, gpus, fields.get("slots"), fields.get("cores"))


def local_host(gpus=()):
    return Host(LOCAL, "127.0.0.1", tuple(gpus), None, len(os.sched_getaffinity(0)))


def check_hosts(hosts, where):
    """Hosts that can reach each other. where(i, field) is the place of a field of host i."""
    for i, host in enumerate(hosts):
        for j in range(i):
            for field in ("name", "address"):
                if getattr(hosts[j], field) == getattr(host, field):
                    raise DescriptionError(f"{where(i, field)}: {getattr(host, field)} is host {hosts[j].name} already")
        if len(hosts) > 1 and host.address.startswith("127."):
            raise DescriptionError(f"{where(i, 'address')}: {host.address} is not an address by which other hosts reach {host.name}; "
                                   "give one")


def read_host_file(path):
    """Hosts of a file with lines `name [slots=N] [gpus=N|LIST] [cores=N] [address=IP]`, as Open MPI's but for what it does
    not know."""
    try:
        with open(path, encoding="utf8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DescriptionError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    hosts, numbers = [], []
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        fields = {"name": words[0]}
        for word in words[1:]:
            field, _, value = word.partition("=")
            if field not in HOST_FIELDS or field in fields or not value:
                raise DescriptionError(f"{path}:{number}: {field}: expected slots=N, gpus=N or gpus=0,1,..., cores=N or address=IP, "
                                       f"got {word!r}")
            if field in ("slots", "cores") and not re.fullmatch(r"\d{1,6}", value):
                raise DescriptionError(f"{path}:{number}: {field}: must be a number, got {value!r}")
            if field == "gpus":
                fields[field] = int(value) if re.fullmatch(r"\d{1,4}", value) else [gpu for gpu in value.split(",") if gpu]
            else:
                fields[field] = int(value) if field in ("slots", "cores") else value
        hosts.append(make_host(fields, lambda field, number=number: f"{path}:{number}: {field}"))
        numbers.append(number)
    if not hosts:
        raise DescriptionError(f"{path}: names no host")
    check_hosts(hosts, lambda i, field: f"{path}:{numbers[i]}: {field}")
    return hosts


def url_of(scheme, listen, address):
    """Where the HTTP API is, for a client on the host with this address."""
    host, port = listen.rsplit(":", 1)
    return f"{scheme}://{address if host in ('0.0.0.0', '[::]', '*') else host}:{port}"
