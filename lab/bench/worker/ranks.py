#!/usr/bin/env python3
"""Compares the steps of a CPU replica with one rank of two threads, with two ranks of one thread over shared memory and over
MPI, and with four ranks that share the same two cores. The kinds take turns; prints medians of the times and of the ratios.

  lab/bench/worker/ranks.py --model DIR [--rows 16] [--steps 60] [--repeats 5] [--cores 2,3] [--real-time]

--real-time: at a real-time priority, for a machine that others use too; needs the right to it. Keep such runs short.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/cluster"))
from cluster import BIN, launch_environment  # noqa: E402

KINDS = {  # name -> ranks, threads, carrier
    "1 rank, 2 threads": (1, 2, "shm"),
    "2 ranks, shared memory": (2, 1, "shm"),
    "2 ranks, MPI": (2, 1, "mpi"),
    "4 ranks on 2 cores, shared memory": (4, 1, "shm"),
    "4 ranks on 2 cores, MPI": (4, 1, "mpi"),
}


def run(arguments, kind):
    ranks, threads, carrier = KINDS[kind]
    place = ["taskset", "-c", arguments.cores]
    command = [*(["chrt", "-f", "10"] if arguments.real_time else []), *place, str(BIN / "bench_ranks"), arguments.model,
               str(threads), str(arguments.rows), str(arguments.steps), carrier]
    if ranks > 1:
        command = ["mpirun", "-q", "-np", str(ranks), *command]
    done = subprocess.run(command, env=launch_environment(), capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cores", default="2,3")
    parser.add_argument("--real-time", action="store_true")
    arguments = parser.parse_args()
    rounds = [{kind: run(arguments, kind) for kind in KINDS} for _ in range(arguments.repeats)]
    first = next(iter(KINDS))
    for kind in KINDS:
        step = statistics.median(r[kind]["step_ms"] for r in rounds)
        exchange = statistics.median(r[kind]["collectives_ms"] for r in rounds)
        ratios = [r[first]["step_ms"] / r[kind]["step_ms"] for r in rounds]
        print(f"{kind:34} step {step:7.2f} ms, of it collectives {exchange:5.2f} ms; speed {statistics.median(ratios):.2f} of "
              f"{first} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
