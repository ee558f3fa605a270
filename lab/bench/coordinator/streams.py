#!/usr/bin/env python3
"""What a coordinator costs for each token, and how late it makes it: replicas without a model report a token of every stream each
step (bench_coordinator), and clients on the same machine see when it arrives. The coordinator has one core, all the rest another.
Prints a line of JSON for each measurement.

  lab/bench/coordinator/streams.py [--streams 2000] [--usage] [--seconds 10] [--replicas 16] [--cores 0,1]
  lab/bench/coordinator/streams.py --requests        # short requests, not streamed: many clients, then one that pauses

On loopback the kernel receives for the client within the call that sends, so that counts as the coordinator's too. --limit-ms:
exit status 1 if the p99 of the latency is not below. Build bench_coordinator and coppice-coordinator first.
"""
import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/cluster"))
from cluster import BIN, free_port, launch_environment  # noqa: E402


def pinned(core, *command):
    return ["taskset", "-c", core, *map(str, command)]


def measure(args, port, control, coordinator):
    flags = [f"--model={args.model}", f"--control={control}", f"--port={port}", f"--coordinator_pid={coordinator.pid}",
             f"--seconds={args.seconds}", f"--replicas={args.replicas}", f"--clients={args.clients}", "--log_level=warn"]
    if not args.requests:
        flags += [f"--streams={args.streams}", f"--tokens_per_s={args.tokens_per_s}", f"--tokens_per_step={args.tokens_per_step}",
                  f"--usage={'true' if args.usage else 'false'}"]
    done = subprocess.run(pinned(args.cores.split(",")[1], BIN / "bench_coordinator", *flags), stdout=subprocess.PIPE, text=True,
                          env=launch_environment(), timeout=600)
    print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        sys.exit(f"bench_coordinator: exit status {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def started(args, port, control, log):
    command = [BIN / "coppice-coordinator", f"--model={args.model}", f"--listen=127.0.0.1:{port}", f"--control_listen={control}",
               "--chat_template=chatml", "--max_connections=15000", "--max_queue=20000", "--heartbeat_interval=5",
               "--max_timeout=100000", "--default_timeout=100000"]
    process = subprocess.Popen(pinned(args.cores.split(",")[0], *command), env=launch_environment(), stdout=log,
                               stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 30
    while "serving http" not in pathlib.Path(log.name).read_text(encoding="utf8"):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            sys.exit("the coordinator does not start: " + pathlib.Path(log.name).read_text(encoding="utf8"))
        time.sleep(0.05)
    return process


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(ROOT / "tests/models/stories260k"))
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--tokens-per-s", type=float, default=20, help="of each stream")
    parser.add_argument("--tokens-per-step", type=int, default=1, help="that a step brings to each stream")
    parser.add_argument("--usage", action="store_true", help="streams ask for the counts so far in each event")
    parser.add_argument("--requests", action="store_true", help="short requests instead of streams")
    parser.add_argument("--clients", type=int, default=64, help="of short requests")
    parser.add_argument("--replicas", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--cores", default="0,1", help="of the coordinator, of the rest")
    parser.add_argument("--limit-ms", type=float)
    args = parser.parse_args()
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    port = free_port()
    control = f"tcp://127.0.0.1:{free_port()}"
    with tempfile.NamedTemporaryFile("w") as log:
        coordinator = started(args, port, control, log)
        try:
            measured = measure(args, port, control, coordinator)
        finally:
            coordinator.kill()
            coordinator.wait()
    if args.limit_ms and measured[0]["latency_ms"]["p99"] >= args.limit_ms:
        sys.exit(f"p99 is not below {args.limit_ms} ms")


if __name__ == "__main__":
    main()
