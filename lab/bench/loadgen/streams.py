#!/usr/bin/env python3
"""How many streams one coppice-loadgen can measure: an open loop against a server that computes nothing (bench_null_streams). Each
stream has an event every 200 ms, so 10,000 streams are 50,000 events/s. Prints the client's own figures. Exit status 1 if it did
not hold the streams, came too late with its requests, or took too much memory.

  streams.py [--streams N] [--seconds S] [--client-prefix 'taskset -c 3'] [--server-prefix 'taskset -c 2']
"""
import argparse
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time

BIN = pathlib.Path(os.environ.get("COPPICE_BIN", pathlib.Path(__file__).resolve().parents[3] / "build/release/bin"))
INTERVAL_MS = 200
STREAM_S = 10


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


def measure(args, port, folder):
    """The result JSON. Streams last STREAM_S, so after that time as many are open as begin within it."""
    command = shlex.split(args.client_prefix) + [
        str(BIN / "coppice-loadgen"), f"--base-url=http://127.0.0.1:{port}", "--input-len=4", "--model=null-streams",
        f"--request-rate={1.05 * args.streams / STREAM_S}", f"--benchmark-duration={STREAM_S + args.seconds}",
        f"--max-send-lag={args.max_send_lag}", "--save-result", f"--result-dir={folder}", "--result-filename=result.json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=3 * STREAM_S + args.seconds + 60)
    print(done.stdout)
    if done.returncode not in (0, 3):
        sys.exit(f"coppice-loadgen: exit status {done.returncode}")
    return json.loads(pathlib.Path(folder, "result.json").read_text(encoding="utf8"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=10000)
    parser.add_argument("--seconds", type=float, default=20, help="after the streams are open")
    parser.add_argument("--max-send-lag", type=float, default=10, help="ms, p99")
    parser.add_argument("--client-prefix", default="", help="command before the load generator")
    parser.add_argument("--server-prefix", default="", help="command before the server")
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(shlex.split(args.server_prefix) + [
        str(BIN / "bench_null_streams"), str(port), str(STREAM_S * 1000 // INTERVAL_MS), str(INTERVAL_MS)], start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while not listens(port):
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit("bench_null_streams did not start")
            time.sleep(0.05)
        with tempfile.TemporaryDirectory() as folder:
            result = measure(args, port, folder)
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # what the prefix may have started too
        server.wait()
    memory = result["client"]["peak_memory_bytes"]
    figures = dict(streams=result["max_concurrent_requests"], events_per_s=result["max_output_tokens_per_s"],
                   send_lag_ms=result["send_lag_ms"], cpu_percent=result["client"]["cpu_percent"], memory_mib=memory >> 20,
                   failed=result["failed"])
    print(json.dumps(figures))
    faults = [name for name, bad in (
        ("fewer streams than asked", result["max_concurrent_requests"] < args.streams),
        ("fewer events than asked", result["max_output_tokens_per_s"] < args.streams * 1000 / INTERVAL_MS),
        ("requests were sent late", not result["valid"]),
        ("requests failed", result["failed"] > 0),
        ("more than 1 GiB", memory >= 1 << 30)) if bad]
    if faults:
        sys.exit("; ".join(faults))


if __name__ == "__main__":
    main()
