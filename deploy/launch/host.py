#!/usr/bin/env python3
"""Runs on each host of a cluster, started by cluster.sh there or through its agent (ssh). Reads one JSON object from
standard input, and prints one as the last line of its answer.

  host.py start    starts the processes that it names, each in a session of its own; makes the folders
  host.py status   tells what runs of the cluster on this host
  host.py stop     ends everything of the cluster on this host and removes its folders; moves the logs elsewhere if it is told to
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib

import installation

import_path = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(import_path.parent))
from cluster_state import Coordinator, cluster_problem  # noqa: E402

MARK = b"COPPICE_LAUNCH="
REASON = re.compile(r"^coppice-[a-z]+: .*", re.MULTILINE)
GRACE_S = 3
FOUND_TIMEOUT_S = 2


class Refused(Exception):
    """The task cannot be done; the text says why."""


def stat_of(pid):
    """(state, session, start time in clock ticks since boot) of a process, or None. The start time tells it from a later
    one."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf8", errors="replace") as file:
            fields = file.read().rpartition(") ")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[3]), fields[19]


def read_bytes(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def pids():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()]


def started(folder):
    """[(name, pid, start time)] of the processes that were started on this host."""
    try:
        lines = (folder / "processes").read_text(encoding="utf8").splitlines()
    except OSError:
        return []
    return [(name, int(pid), start) for name, pid, start in (line.split() for line in lines)]


def runs(pid, start):
    stat = stat_of(pid)
    return stat is not None and stat[0] != "Z" and stat[2] == start


def marked(launch):
    """[(pid, host, name, rank, program)] of the processes that carry the mark of a launch, of whatever host."""
    found = []
    for pid in pids():
        variables = read_bytes(f"/proc/{pid}/environ").split(b"\0")
        mark = next((v[len(MARK):].decode(errors="replace") for v in variables if v.startswith(MARK)), "")
        stat = stat_of(pid) if mark.startswith(launch + "/") else None
        if stat is None or stat[0] == "Z":
            continue
        rank = next((v.partition(b"=")[2].decode() for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK=")), None)
        program = os.path.basename(read_bytes(f"/proc/{pid}/cmdline").split(b"\0")[0].decode(errors="replace"))
        found.append((pid, *mark.split("/", 2)[1:], rank, program))
    return found


def launch_settings(script, own):
    """The variables that environment.sh sets on this host, on top of those of the process."""
    output = subprocess.run(["bash", "-c", '. "$1" && env -0', "host.py", str(script)], env={**os.environ, **own}, check=True,
                            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL).stdout.decode(errors="surrogateescape")
    return dict(line.split("=", 1) for line in output.split("\0") if "=" in line)


def missing(request):
    """What this host lacks for the processes, or None."""
    for path in request["programs"]:
        if not os.access(path, os.X_OK):
            if installation.INSTALLED:
                return f"{path} is missing; Coppice must be installed on every host"
            return f"{path} is missing; run deploy/setup.sh and deploy/build.sh{request['build']} first"
    for path in request["models"]:
        if not os.path.isdir(path) and not os.path.isfile(path):
            return f"{path}: no such folder or file; expected a Hugging Face model folder with config.json and model.safetensors, or a GGUF file"
    if request["mpi"] and shutil.which("orted") is None:
        return f"orted is not in PATH; Open MPI must be installed on every host{'' if installation.INSTALLED else ' (deploy/setup.sh)'}"
    return None


def write_private(path, content):
    """Writes a file that only this user may read. It is there whole or not at all: hosts that share the folder write the same
    file, and a process that another host has started may read it meanwhile."""
    handle, written = tempfile.mkstemp(dir=os.path.dirname(path))
    with open(handle, "w", encoding="utf8") as file:
        file.write(content)
    os.replace(written, path)


def check_listen(listen):
    """Refused when something else has the address of the API: its answers would count as the coordinator's."""
    host, _, port = listen.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        with socket.socket(found[0][0], socket.SOCK_STREAM) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(found[0][4])
    except PermissionError:  # the program may have the capability to use a low port
        pass
    except OSError as error:
        raise Refused(f"cannot listen on {listen}: {error.strerror}") from error


def api_files(arguments, environment):
    """{setting: file} of what is needed to ask the coordinator, as it takes them from its flags, its environment and a
    configuration file; "" for none. {} when it cannot say: its log will tell why."""
    printed = subprocess.run([*arguments, "--print_config"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if printed.returncode != 0:
        return {}
    settings = tomllib.loads(printed.stdout)["coordinator"]
    return {name: settings[name] and os.path.abspath(settings[name]) for name in ("tls_cert_file", "admin_keys_file")}


def checked(check):
    """What the worker says of the model in its first line, from the headers alone. Refused when it would not run it."""
    environment = launch_settings(import_path.parent / "environment.sh", check["environment"])
    said = subprocess.run(check["arguments"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if said.returncode != 0:
        raise Refused("\n".join(REASON.findall(said.stderr)[:8]) or said.stderr.strip() or f"{check['arguments'][0]}: exit status {said.returncode}")
    return said.stdout.partition("\n")[0]


def start(request):
    reason = missing(request)
    if reason:
        raise Refused(reason)
    if "listen" in request:
        check_listen(request["listen"])
    folder = pathlib.Path(request["folder"])
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for made in request["run_folders"]:
        os.makedirs(made, mode=0o700, exist_ok=True)
    for path, content in request["files"].items():
        write_private(path, content)
    answer = {"model": checked(request["check"])} if "check" in request else {}
    for process in request["processes"]:
        environment = launch_settings(import_path.parent / "environment.sh", process["environment"])
        if process["name"] == "coordinator":
            answer["api_files"] = api_files(process["arguments"], environment)
        try:
            with open(folder / f"{process['name']}.log", "wb") as log:
                child = subprocess.Popen(process["arguments"], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                         start_new_session=True)
        except OSError as error:
            raise Refused(f"{process['name']}: {error.filename or process['arguments'][0]}: {error.strerror}") from error
        stat = stat_of(child.pid)
        with open(folder / "processes", "a", encoding="utf8") as file:
            file.write(f"{process['name']} {child.pid} {stat[2] if stat else 0}\n")
    return answer


def status(request):
    folder = pathlib.Path(request["folder"])
    processes = []
    for name, pid, began in started(folder):
        log = folder / f"{name}.log"
        process = {"name": name, "pid": pid, "running": runs(pid, began), "log": str(log)}
        if not process["running"]:
            text = read_bytes(log).decode(errors="replace")
            process["reasons"] = sorted(set(REASON.findall(text)))[:8] or text.splitlines()[-20:]
        processes.append(process)
    answer = {"processes": processes}
    if request.get("ranks"):
        answer["ranks"] = [{"name": name, "rank": rank, "pid": pid} for pid, host, name, rank, program in marked(request["id"])
                           if rank is not None and host == request["host"] and program.startswith("coppice-")]
    if request.get("api"):
        answer["problem"], answer["lasts"] = cluster_problem(Coordinator(**request["api"]), request["replicas"], request["drafts"])
    return answer


def left(request, sessions):
    """The processes of the launch on this host: of its sessions, those that carry its mark, and MPI's, which name its
    folder."""
    ours = {pid for pid, *_ in marked(request["id"])}
    for pid in pids():
        stat = stat_of(pid)
        if stat is None or stat[0] == "Z":
            continue
        if stat[1] in sessions or request["run_folders"][0].encode() in read_bytes(f"/proc/{pid}/cmdline"):
            ours.add(pid)
    return ours


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def keep_logs(folder, kept):
    """Moves the logs to another folder, instead of those that are there. Returns whether there were any."""
    for old in kept.glob("*.log"):
        old.unlink()
    logs = list(folder.glob("*.log"))
    if logs:
        kept.mkdir(parents=True, exist_ok=True, mode=0o700)
    for log in logs:
        log.replace(kept / log.name)
    return bool(logs)


def stop(request):
    folder = pathlib.Path(request["folder"])
    # A session can be told by its number only while its leader, or one that it began, is there: a later session may get the number.
    began = [(pid, start) for _, pid, start in started(folder)]
    sessions = {pid for pid, start in began if runs(pid, start) or stat_of(pid) is None}
    for pid, start in began:
        if runs(pid, start):
            send(pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while (remaining := left(request, sessions)) and time.monotonic() < deadline:
        time.sleep(0.05)
    deadline = time.monotonic() + FOUND_TIMEOUT_S
    while remaining and time.monotonic() < deadline:  # again, since a process may have started another in the meantime
        for pid in remaining:
            send(pid, signal.SIGKILL)
        time.sleep(0.02)
        remaining = left(request, sessions)
    for made in request["run_folders"]:
        shutil.rmtree(made, ignore_errors=True)
    if remaining:
        raise Refused(f"processes {', '.join(map(str, sorted(remaining)))} could not be ended")
    try:
        kept = "keep" in request and keep_logs(folder, pathlib.Path(request["keep"]))
    except OSError:  # what was started has to go all the same
        kept = False
    shutil.rmtree(folder, ignore_errors=True)
    return {"kept": kept}


def main():
    request = json.load(sys.stdin)
    try:
        print(json.dumps({"start": start, "status": status, "stop": stop}[sys.argv[1]](request)))
    except Refused as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}" if error.filename else str(error))


if __name__ == "__main__":
    main()
