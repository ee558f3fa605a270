#!/usr/bin/env python3
"""cluster.sh up, down and status. Read here first: it reads its options (options.py), describes the cluster (description.py,
cluster_file.py), chooses its draft (draft_choice.py), places it (placement.py), turns it into command lines (processes.py) and has
them started on their hosts (agent.py, host.py). running.py knows what has been started.
cluster.sh has the help text."""
import dataclasses
import os
import pathlib
import secrets
import signal
import socket
import sys
import tempfile
import time

import installation
from agent import DEFAULT_AGENT, HostError
from cluster_file import read_cluster_file
from description import SETTINGS, WORDS, DescriptionError, check_setting, is_local, local_host, read_host_file
from draft_choice import AUTO, NONE, SUFFIXES, choose, program_check
from draft_files import HEADS, NAMES
from options import Usage, check_api_key, parse, take_listen
from placement import place
from processes import CONTROL_PORT, Launch, all_local, check_command, local_api, outside_url, processes_of
from running import Failure, Running, locked

DEPLOY = pathlib.Path(__file__).resolve().parents[1]
POLL_S = {True: 0.2, False: 1.0}  # by whether all hosts are this one


def visible_gpus(options, ranks):
    """The GPUs of this host that replicas and draft nodes are bound to, with --backend cuda: those of --gpus or
    CUDA_VISIBLE_DEVICES, else all that the driver lists, if there is one for each rank. Without any, processes take them in
    turn, and may share them."""
    if options.get("backend") != "cuda":
        return ()
    named = options.get("gpus", os.environ.get("CUDA_VISIBLE_DEVICES"))
    if named is not None:
        return tuple(gpu.strip() for gpu in named.split(",") if gpu.strip())
    driver = pathlib.Path("/proc/driver/nvidia/gpus")
    count = len(list(driver.iterdir())) if driver.is_dir() else 0
    return tuple(map(str, range(count))) if count >= ranks else ()


def draft_chooser(options):
    """choose(settings, hosts, flags): the settings with the draft that is meant, and lines about it. Without a word about the draft one is
    looked for if all hosts are this one: others may lack what is here."""
    def chosen(settings, hosts, flags):
        draft = settings["draft"] or (AUTO if all(is_local(host) for host in hosts) else NONE)
        off = any(flag.replace("-", "_") in ("__suffix_drafts=false", "__nosuffix_drafts") for flag in flags["worker"] + flags["all"])
        choice = choose(settings["target"], NONE if settings["drafts"] == 0 and draft == AUTO else draft,
                        program_check(f"{program_folder(settings, options)}/coppice-worker"), "there are no drafts" if off else SUFFIXES)
        if settings["draft_kind"] == "model" and choice.kind in HEADS:
            raise Usage(f"--draft-kind model: {choice.path} is {NAMES[choice.kind]}, which is served as a head")
        kind = settings["draft_kind"] if settings["draft_kind"] != "auto" else "head" if choice.kind in HEADS else "model"
        return dict(settings, draft=choice.path, draft_kind=kind, draft_found=draft == AUTO), choice.said
    return chosen


def describe(options, extra):
    """The Cluster that the options and the flags after -- ask for."""
    extra, listen = take_listen(extra, options)
    cluster = describe_plain(options, listen)
    flags = (*cluster.flags["coordinator"], *extra)
    if "api-key" in options:
        check_api_key(options["api-key"], [*cluster.flags["all"], *flags])
    return dataclasses.replace(cluster, flags={**cluster.flags, "coordinator": flags})


def describe_plain(options, listen):
    """listen: address:port of the API, if it is not what --port says."""
    if "preset" in options and installation.INSTALLED:
        raise Usage("--preset is for a source tree; --bin names another folder of programs")
    named = [name for name in options if name.replace("-", "_") in SETTINGS]
    if "cluster" in options:
        clash = [*named, *(name for name in ("hostfile", "gpus", "port") if name in options)]
        if clash:
            raise Usage(f"--{clash[0]}: the cluster file says it")
        return read_cluster_file(options["cluster"], draft_chooser(options))
    settings = {name: setting.default for name, setting in SETTINGS.items()}
    for name in named:
        key = name.replace("-", "_")
        settings[key] = options[name]
        reason = check_setting(key, options[name])
        if reason:
            raise Usage(f"--{name} {reason}")
    if not settings["target"]:
        raise Usage("up needs --target DIR, or --cluster FILE")
    settings["draft"] = settings["draft"] or None
    for key in ("target", "draft", "cluster_key", "bin", "tuning_cache"):
        if settings[key] and settings[key] not in WORDS.get(key, ()):
            settings[key] = os.path.abspath(settings[key])
    if settings["chat_template"] and os.path.isfile(settings["chat_template"]):  # else the name of a family
        settings["chat_template"] = os.path.abspath(settings["chat_template"])
    hosts = read_host_file(options["hostfile"]) if "hostfile" in options else [
        local_host(visible_gpus(options, settings["replicas"] * settings["tp"]))]
    coordinator = hosts[0], listen or f"127.0.0.1:{options.get('port', 8000)}", None
    flags = {role: () for role in ("all", "coordinator", "worker", "draft")}
    settings, said = draft_chooser(options)(settings, hosts, flags)
    return place(settings, hosts, coordinator, [], [], flags, {}, lambda field: f"--{field.replace('_', '-')}", said)


def with_shell(cluster):
    """The cluster with this shell's variables of NCCL, which must be the same for all ranks. The cluster file goes before them;
    NCCL_HOSTID names one host."""
    shell = {name: value for name, value in sorted(os.environ.items()) if name.startswith("NCCL_") and name != "NCCL_HOSTID"}
    return dataclasses.replace(cluster, environment={**shell, **cluster.environment})


def program_folder(settings, options):
    if settings["bin"]:
        return settings["bin"]
    if "preset" in options:
        return str(installation.ROOT / "build" / options["preset"] / "bin")
    return installation.program_folder()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def make_launch(cluster, options):
    dry = "dry-run" in options
    local = all_local(cluster)
    # The first number is that of this process, so that it can be told what is whose.
    launch_id = "dry-run" if dry else f"{os.getpid()}.{secrets.token_hex(4)}"
    port = cluster.settings["control_port"] or (free_port() if local and not dry else CONTROL_PORT)
    temporary = tempfile.gettempdir() if local else "/tmp"
    shm = f"/dev/shm/coppice.{launch_id}" if not local or os.access("/dev/shm", os.W_OK) else ""
    return Launch(launch_id, program_folder(cluster.settings, options), f"{temporary}/coppice.{launch_id}", shm,
                  options.get("agent", DEFAULT_AGENT), port)


def state_folder(options, port=None):
    """port: that of the API, if it is not what --port says."""
    if "state" in options:
        return pathlib.Path(options["state"]).absolute()
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):  # as the standard of this variable says
        base = os.path.join(os.path.expanduser("~"), ".local/state")
    if not os.path.isabs(base):
        raise Failure("no home folder: give --state DIR")
    return pathlib.Path(base, "coppice", str(port or options.get("port", 8000)))


def key_of(cluster, launch):
    """{path: content} of the cluster key, when this start makes one: below a folder that has the same path on every host, is
    private, and is removed by stop."""
    if cluster.settings["cluster_key"] is not None:
        return {}
    cluster.settings["cluster_key"] = f"{launch.run}/cluster_key"
    return {cluster.settings["cluster_key"]: f"coppice-cluster-key-1 {secrets.token_hex(32)}\n"}


def with_api_key(cluster, folder, key):
    """(the cluster whose users need the key, {path: content} of its file on the coordinator's host)"""
    path = f"{folder}/api_keys"
    flags = (*cluster.flags["coordinator"], f"--api_keys_file={path}")
    return dataclasses.replace(cluster, flags={**cluster.flags, "coordinator": flags}), {path: f"{key} user\n"}


def start_requests(running, cluster, launch, processes, key, api_key, options):
    requests, first = {}, cluster.replicas[0][0].host.name
    for host in running.hosts():
        listen = {"listen": cluster.settings["listen"]} if host == cluster.coordinator.name else {}
        here = [p for p in processes if p.host == host]
        replicas = [p for p in processes if p.name.startswith("replica-") and host in p.hosts]
        drafts = [p for p in here if p.name.startswith("draft-")]
        programs = [f"{launch.bin}/coppice-{role}" for role, needed in
                    (("coordinator", host == cluster.coordinator.name), ("worker", replicas), ("draft", drafts)) if needed]
        needs_target = replicas or host == cluster.coordinator.name or (drafts and cluster.states)
        needs_draft = drafts or (replicas and (cluster.own_drafts or cluster.draft_nodes_take_states()))  # every rank reads its config.json
        models = [cluster.settings["target"]] * bool(needs_target) + [cluster.settings["draft"]] * bool(needs_draft)
        folders = [launch.run, *([launch.shm] if launch.shm else []), *(f"{launch.run}/{p.name}" for p in replicas)]
        check = dict(check=dict(environment=cluster.environment, arguments=check_command(cluster, launch))) if host == first else {}
        requests[host] = running.request(
            host, **listen, **check, programs=programs, models=models, mpi=bool(replicas),
            files={**key, **(api_key if host == cluster.coordinator.name else {})}, build=f" {options['preset']}" if "preset" in options else "",
            processes=[dict(name=p.name, environment=p.environment, arguments=p.arguments) for p in here]) | {"run_folders": folders}
    return requests


def ended(answers):
    return [(host, process) for host, answer in answers.items() if not isinstance(answer, HostError)
            for process in answer["processes"] if not process["running"]]


def wait_ready(running, cluster, deadline_s):
    begun, last = time.monotonic(), None
    wanted = len(cluster.replicas), len(cluster.drafts)
    while True:
        answers = running.status(ready_for=wanted)
        if ended(answers):
            time.sleep(0.3)  # the others may be about to say why
            lines = []
            for host, process in ended(running.status()):
                where = "" if running.flat() else f" on {host}"
                lines += [f"{process['name']}{where} ended before the cluster was ready:", *process["reasons"]]
            raise Failure("\n".join(lines))
        answer = answers[running.content["coordinator"]]
        reason = str(answer) if isinstance(answer, HostError) else answer["problem"]
        if reason is None:
            return
        if not isinstance(answer, HostError) and answer["lasts"]:
            raise Failure(f"the cluster cannot be asked whether it is ready: {reason}")
        if time.monotonic() - begun >= deadline_s:
            raise Failure(f"not ready after {deadline_s} s: {reason}; a large model needs a longer --deadline")
        if reason != last:
            print(f"cluster: waiting: {reason}", flush=True)
        last = reason
        time.sleep(POLL_S[running.flat()])


def print_lines(cluster, running, processes):
    print("# Each line on its host, in a session of its own, with the settings of deploy/environment.sh where it has none.")
    for process in processes:
        call = running.agent.words(process.host, [])
        agent = "" if process.host in running.agent.local else f" (by {' '.join(call[:-1])})"
        print(f"# {process.name} on {process.host}{agent}, log {running.folder(process.host)}/{process.name}.log")
        print(process.line())
    for note in cluster.notes:
        print(f"# {note}")


def up(options, flags):
    cluster = with_shell(describe(options, flags))
    launch = make_launch(cluster, options)
    state = state_folder(options, cluster.settings["listen"].rsplit(":", 1)[1])
    local = [host.name for host in cluster.hosts if is_local(host)]
    key = key_of(cluster, launch)
    used = {cluster.coordinator.name, *(part.host.name for parts in (*cluster.replicas, cluster.drafts) for part in parts)}
    running = Running(state, dict(
        id=launch.id, agent=launch.agent, coordinator=cluster.coordinator.name, api=local_api(cluster, {}), local=local,
        hosts=[host.name for host in cluster.hosts if host.name in used], draft=draft_line(cluster),
        run_folders=[launch.run, *([launch.shm] if launch.shm else [])]))
    running.content["local"] = [host for host in running.hosts() if host in local]
    api_key = {}
    if "api-key" in options:
        cluster, api_key = with_api_key(cluster, running.folder(cluster.coordinator.name), options["api-key"])
    processes = processes_of(cluster, launch)
    if "dry-run" in options:
        print_lines(cluster, running, processes)
        return
    with locked(state):
        check_free(state)
        start(running, cluster, launch, processes, key, api_key, options)
    print(f"cluster: ready at {outside_url(cluster, running.content['api'])}, logs in {state}")


def check_free(state):
    """The folder is for a cluster to come: one that has ended is cleared away, and files that are not its own are not."""
    if not (state / "cluster.json").exists():
        if state.exists() and any(state.iterdir()):
            raise Failure(f"{state}: has other files; give a folder of its own (--state DIR)")
        return
    before = Running.read(state)
    answers = before.status().values()
    unasked = [str(answer) for answer in answers if isinstance(answer, HostError)]
    if unasked:
        raise Failure("\n".join([*unasked, f"a cluster has its state in {state}", before.way_out()]))
    if any(process["running"] for answer in answers for process in answer["processes"]):
        raise Failure(f"a cluster with its state in {state} is already up; "
                      f"end it with: {installation.told('cluster.sh down')} --state {state}")
    failed = before.stop()
    if failed:
        raise Failure("\n".join([*failed, before.way_out()]))


def draft_line(cluster):
    """What status says of the draft."""
    if cluster.settings["draft"] is None or not (cluster.own_drafts or cluster.drafts):
        return "no draft model"
    where = "in the processes of the replicas' leaders" if cluster.own_drafts else f"on {len(cluster.drafts)} draft node(s)"
    return f"draft {cluster.settings['draft']}, {where}"


def drafts_said(cluster):
    return "drafts in their processes" if cluster.own_drafts else f"{len(cluster.drafts)} draft node(s)"


def start(running, cluster, launch, processes, key, api_key, options):
    """Starts all and waits until it is ready. Else ends all, and keeps the logs of what failed."""
    tp = "+".join(str(part.ranks) for part in cluster.replicas[0])
    print(f"cluster: starting 1 coordinator, {len(cluster.replicas)} replica(s) of {tp} rank(s), {drafts_said(cluster)}"
          + ("" if running.flat() else f" on {len(running.hosts())} hosts"), flush=True)
    for note in cluster.notes:
        print(f"cluster: {note}")
    running.write()
    try:
        answers = running.agent.ask_all("start", start_requests(running, cluster, launch, processes, key, api_key, options))
        failed = [str(answer) for answer in answers.values() if isinstance(answer, HostError)]
        if failed:
            raise Failure("\n".join(failed))
        print(f"cluster: {answers[cluster.replicas[0][0].host.name]['model']}", flush=True)
        running.content["api"] = local_api(cluster, answers[cluster.coordinator.name]["api_files"])
        running.write()
        wait_ready(running, cluster, options.get("deadline", 120))
    except BaseException as error:
        failed = running.stop(keep_logs=isinstance(error, Failure))
        for line in [*failed, running.way_out()] if failed else ():
            print(f"cluster: {line}", file=sys.stderr)
        raise


def down(options):
    state, forget = state_folder(options), "forget" in options
    Running.read(state)  # before a lock is made beside nothing
    with locked(state):
        running = Running.read(state)
        failed = running.stop(forget=forget)
    if failed and not forget:
        raise Failure("\n".join([*failed, running.way_out()]))
    for line in failed:
        print(f"cluster: {line}; forgotten", file=sys.stderr)
    print("cluster: down")


def status(options):
    running = Running.read(state_folder(options))
    unreachable = []
    for host, answer in running.status(ranks=True).items():
        at = "" if running.flat() else f"{host} "
        if isinstance(answer, HostError):
            print(f"{host}: cannot be asked: {answer}")
            unreachable.append(host)
            continue
        for process in answer["processes"]:
            state = f"running, pid {process['pid']}" if process["running"] else "ended"
            print(f"{at}{process['name']}: {state}, log {process['log']}")
        for rank in sorted(answer["ranks"], key=lambda rank: (rank["name"], int(rank["rank"]))):
            print(f"{at}{rank['name']} rank {rank['rank']}: running, pid {rank['pid']}")
    if "draft" in running.content:
        print(running.content["draft"])
    host = running.content["coordinator"]
    if host in unreachable:
        raise Failure(f"the coordinator's host {host} cannot be asked")
    api = [f"--{name.replace('_', '-')}={value}" for name, value in running.content["api"].items() if value]
    try:
        shown = running.agent.run(host, ["python3", "-B", str(DEPLOY / "cluster_state.py"), "show", *api])
    except HostError as error:
        raise Failure(str(error)) from error
    print(shown.stdout, end="")
    if shown.returncode != 0:
        raise Failure(shown.stderr.strip())
    if unreachable:
        raise Failure(f"cannot be asked: {', '.join(unreachable)}")


def main():
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end(number, _):
        for other in signals:
            signal.signal(other, signal.SIG_IGN)  # once is enough, and nothing may be left behind
        raise SystemExit(128 + number)

    for number in signals:
        signal.signal(number, end)
    try:
        command, options, flags = parse(sys.argv[1:])
        if command == "up":
            up(options, flags)
        else:
            {"down": down, "status": status}[command](options)
    except Usage as error:
        print(f"cluster: {error} (see --help)", file=sys.stderr)
        sys.exit(2)
    except (DescriptionError, Failure) as error:
        for line in str(error).splitlines():
            print(f"cluster: {line}" if not line.startswith("coppice-") else line, file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        print(f"cluster: {f'{error.filename}: {error.strerror}' if error.filename else error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
