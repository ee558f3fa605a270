#!/usr/bin/env python3
"""Runs a test of kernels in simulation under many orders of the simulated threads: forward, reverse, then random ones.

  schedules.py COUNT PROGRAM [ARGUMENT ...]

COUNT random orders with the seeds 1, 2, 3, ..., or COPPICE_ORDERS of the environment; every other one has three blocks resident at a
time. As many run side by side as
there are cores. The first order that fails is printed with its output, and the exit status is 1. The program should be built with
a sanitizer too."""
import concurrent.futures
import os
import subprocess
import sys


def orders(count):
    yield {"DEV_ORDER": "forward"}
    yield {"DEV_ORDER": "reverse", "DEV_RESIDENT": "2"}
    for seed in range(1, count + 1):
        yield {"DEV_ORDER": "random", "DEV_SEED": str(seed), "DEV_RESIDENT": str(1 + seed % 2 * 2)}


def run(order):
    return order, subprocess.run(sys.argv[2:], env={**os.environ, **order}, capture_output=True, text=True)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    tried = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for order, result in pool.map(run, orders(int(os.environ.get("COPPICE_ORDERS", sys.argv[1])))):
            if result.returncode != 0:
                pool.shutdown(wait=False, cancel_futures=True)
                print(" ".join(f"{name}={value}" for name, value in order.items()), *sys.argv[2:])
                sys.exit(f"{result.stdout}\n{result.stderr}\nstatus {result.returncode}")
            tried += 1
    print(f"{tried} orders pass")


if __name__ == "__main__":
    main()
