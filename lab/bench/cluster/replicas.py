#!/usr/bin/env python3
"""Throughput against the number of replicas when cores are no limit: the steps of the replicas sleep, so that what is left is
what the cluster makes of them: coordinator, channels, scheduling of the engines. Real processes; a small model and
coppice-loadgen. Each number of replicas is measured in turn; prints tokens/s and the median of the ratios to one replica.

  lab/bench/cluster/replicas.py [--replicas 1,2] [--step-ms 40] [--rows 8] [--requests 128] [--tokens 48] [--repeats 3] [--tp 1]

--rows bounds the requests that a replica computes at a time, so that more requests need more replicas. Build the programs first:
bench_sleeping_worker, coppice-coordinator and coppice-loadgen.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/cluster"))
from cluster import BIN, Cluster  # noqa: E402

MODEL = ROOT / "tests/models/stories260k"


class SleepingCluster(Cluster):
    """Its workers' steps sleep."""

    def __init__(self, step_ms, **options):
        replicas = options["replicas"]
        super().__init__(target=MODEL, drafts=0, environments={f"replica-{i}": {"BENCH_STEP_MS": str(step_ms)}
                                                               for i in range(replicas)}, **options)

    def program(self, role, *flags):
        command = super().program(role, *flags)
        return [BIN / "bench_sleeping_worker", *command[1:]] if role == "worker" else command


def tokens_per_second(arguments, replicas):
    flags = (f"--max_rows={arguments.rows}",)
    with SleepingCluster(arguments.step_ms, replicas=replicas, tp=arguments.tp, worker_flags=flags) as cluster, \
            tempfile.TemporaryDirectory() as folder:
        command = [BIN / "coppice-loadgen", f"--base-url=http://127.0.0.1:{cluster.port}", "--input-len=4",
                   f"--output-len={arguments.tokens}", f"--num-prompts={arguments.requests}", "--num-warmups=8",
                   f"--max-concurrency={4 * arguments.rows}", "--max-send-lag=1000", "--save-result", f"--result-dir={folder}",
                   "--result-filename=result.json", "--max-failed=0"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            sys.exit(f"coppice-loadgen: {done.stdout}{done.stderr}")
        result = json.loads(pathlib.Path(folder, "result.json").read_text(encoding="utf8"))
        return result["output_throughput"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", default="1,2")
    parser.add_argument("--step-ms", type=float, default=40)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tp", type=int, default=1)
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.replicas.split(",")]
    rounds = []
    for _ in range(arguments.repeats):
        rounds.append({count: tokens_per_second(arguments, count) for count in counts})
        print(json.dumps(rounds[-1]), flush=True)
    for count in counts:
        speed = statistics.median(r[count] for r in rounds)
        ratios = [r[count] / r[counts[0]] for r in rounds]
        print(f"{count} replicas: {speed:7.1f} tokens/s, {statistics.median(ratios):.2f} times {counts[0]} "
              f"({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
