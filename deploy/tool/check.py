#!/usr/bin/env python3
"""Reports whether this machine can run a cluster: programs, processor, memory, Open MPI, GPUs, the port. Then starts the pair of the
demo on a free port, asks it two questions with drafts and without, compares the answers, and ends it.

Exit status 1 if something is missing or wrong; each such line begins with FAILED. What only some clusters need is told without that.
"""
import argparse
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

DEPLOY = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(DEPLOY / "launch"))
import installation  # noqa: E402

PROGRAMS = ("coppice-coordinator", "coppice-worker", "coppice-draft", "coppice-loadgen", "coppice-catalogue")
INSTRUCTION_SETS = ("avx512_bf16", "avx512", "avx2")  # the values of --kernels, best first
PAIR = DEPLOY / "demo"
QUESTIONS = 2
LEAST_SHARED_BYTES = 64 << 20  # Open MPI keeps some MB for each rank there
GIB = float(1 << 30)
READY_WITHIN_S = 120


class Problem(Exception):
    """What is missing or wrong, in a line."""


def output_of(words):
    """What a command prints. Problem if it cannot be run or fails."""
    try:
        result = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Problem(f"{words[0]}: {getattr(error, 'strerror', None) or 'no answer within a minute'}") from error
    if result.returncode != 0:
        reason = (result.stderr.strip() or result.stdout.strip()).splitlines()
        raise Problem(f"{words[0]}: {reason[-1] if reason else f'exit status {result.returncode}'}")
    return result.stdout


def succeeds(words):
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def programs():
    folder = installation.program_folder()
    missing = [program for program in PROGRAMS if not os.access(os.path.join(folder, program), os.X_OK)]
    if missing:
        how = "" if installation.INSTALLED else f"; deploy/build.sh release {' '.join(missing)}"
        raise Problem(f"{folder} lacks {', '.join(missing)}{how}")
    versions = {program: output_of([os.path.join(folder, program), "--version"]).split()[-1] for program in PROGRAMS}
    if len(set(versions.values())) > 1:
        raise Problem(f"{folder}: different versions: {', '.join(' '.join(pair) for pair in versions.items())}")
    return f"version {versions[PROGRAMS[0]]} in {folder}"


def processor():
    """The name of the processor, the cores that a process gets, and the instruction sets that the kernels have for it."""
    with open("/proc/cpuinfo", encoding="utf8") as file:
        name = re.search(r"^model name\s*: (.*)", file.read(), re.MULTILINE)
    worker = os.path.join(installation.program_folder(), "coppice-worker")
    usable = [kernels for kernels in INSTRUCTION_SETS if succeeds([worker, f"--model={PAIR}", f"--kernels={kernels}", "--check_config"])]
    sets = f"kernels for {', '.join(usable)}" if usable else "no kernels for its instruction sets but the slow scalar ones"
    return f"{name[1] if name else 'unknown'}; cores: {len(os.sched_getaffinity(0))}; {sets}"


def memory():
    with open("/proc/meminfo", encoding="utf8") as file:
        kib = {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+) kB", file.read(), re.MULTILINE)}
    return f"{kib['MemTotal'] * 1024 / GIB:.1f} GiB, {kib['MemAvailable'] * 1024 / GIB:.1f} GiB of it free"


def shared_memory():
    """Open MPI keeps the messages between the ranks of a host in files of /dev/shm, or else in those of the temporary folder."""
    if not os.access("/dev/shm", os.W_OK):
        return f"/dev/shm cannot be written; ranks use {tempfile.gettempdir()} instead"
    room = shutil.disk_usage("/dev/shm")
    if room.free < LEAST_SHARED_BYTES:
        raise Problem(f"/dev/shm: {room.free >> 20} MiB free, expected {LEAST_SHARED_BYTES >> 20} (of a container: --shm-size)")
    return f"/dev/shm, {room.free / GIB:.1f} GiB free"


def open_mpi():
    for program in ("mpirun", "orted"):
        if shutil.which(program) is None:
            raise Problem(f"{program} is not in PATH; install Open MPI (package openmpi-bin)")
    first = output_of(["mpirun", "--version"]).splitlines()[0]
    if "Open MPI" not in first:
        raise Problem(f"{shutil.which('mpirun')} is not that of Open MPI: {first}")
    return f"{first.split()[-1]}, {shutil.which('mpirun')}"


def python():
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):
        raise Problem(f"{version}; the launchers need 3.11 or later")
    converts = any(succeeds([python, "-c", "import numpy, pip"]) for python in (sys.executable, "/usr/bin/python3"))
    return version + ("" if converts else f"; {installation.told('models.sh')} also needs the packages python3-numpy and python3-pip")


def gpus():
    if shutil.which("nvidia-smi") is None:
        return "none (no nvidia-smi)"
    try:
        listed = output_of(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]).splitlines()
    except Problem as problem:
        return f"none ({problem})"
    return f"{'; '.join(line.strip() for line in listed)}. They need programs of a CUDA build" if listed else "none"


def port(number):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", number))
        except OSError as error:
            raise Problem(f"127.0.0.1:{number}: {error.strerror}; give another with --port") from error
    return f"127.0.0.1:{number} is free"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def last_line(result):
    lines = (result.stderr.strip() or result.stdout.strip()).splitlines()
    return lines[-1] if lines else f"exit status {result.returncode}"


def answers():
    """Answers of a whole cluster with drafts are those without."""
    number, started = free_port(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="coppice.check.") as folder:
        state, questions = f"{folder}/state", pathlib.Path(folder, "questions.jsonl")
        lines = (PAIR / "questions.jsonl").read_text(encoding="utf8").splitlines(keepends=True)[:QUESTIONS]
        questions.write_text("".join(lines), encoding="utf8")

        def launch(*words):
            return subprocess.run([str(DEPLOY / "cluster.sh"), *words, "--state", state], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, check=False)
        try:
            up = launch("up", "--target", str(PAIR / "wikisql-target"), "--draft", str(PAIR / "wikisql-draft"), "--drafts", "1",
                        "--port", str(number), "--deadline", str(READY_WITHIN_S))
            if up.returncode != 0:
                raise Problem(f"the demo's pair does not start: {last_line(up)}")
            asked = subprocess.run([sys.executable, "-B", str(DEPLOY / "ask.py"), "--port", str(number), "--repeats", "1", str(questions)],
                                   stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if asked.returncode != 0:
                raise Problem(f"the demo's pair: {last_line(asked)}")
        finally:
            if os.path.exists(state):
                launch("down")
    return f"the demo's pair gave the same answers with drafts and without ({time.monotonic() - started:.0f} s)"


def end_by_signal(number, _):
    """A signal ends the program as an exception does, so that no cluster is left."""
    sys.exit(128 + number)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="coppice check")
    parser.add_argument("--port", type=int, default=8000, metavar="PORT", help="the port that is to be free [%(default)s]")
    parser.add_argument("--no-start", action="store_true", help="starts no cluster")
    args = parser.parse_args()
    if not 1 <= args.port <= 65535:
        parser.error(f"--port must be between 1 and 65535, got {args.port}")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_by_signal)
    failed = 0
    rows = [("programs", programs), ("processor", processor), ("memory", memory), ("shared memory", shared_memory), ("Open MPI", open_mpi),
            ("Python", python), ("GPUs", gpus), ("port", lambda: port(args.port))]
    for name, report in [*rows, *([] if args.no_start else [("answers", answers)])]:
        try:
            print(f"{name + ':':<15}{report()}", flush=True)
        except Problem as problem:
            failed += 1
            print(f"FAILED {name}: {problem}", flush=True)
    if failed:
        sys.exit(f"check: {failed} of {len(rows) + (not args.no_start)} failed")


if __name__ == "__main__":
    main()
