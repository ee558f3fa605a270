#!/usr/bin/env python3
"""Kills and stops the nodes of a cluster while clients with mixed requests compare every answer. Prints each event and, at the end,
events, requests, failed, wrong and hung. Exits with 1 unless the last three are 0, every event was done and nothing is left behind."""
import argparse
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from clients import Clients  # noqa: E402
from cluster import Cluster, processes_naming  # noqa: E402
from events import Disturber, planned_events  # noqa: E402
from stopwatch import Stopwatch, wait_until  # noqa: E402

IDLE_WITHIN_S = 30


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--tp", type=int, default=2, help="ranks of each replica")
    parser.add_argument("--drafts", type=int, default=2)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--requests", type=int, default=100000, help="at most")
    parser.add_argument("--seconds", type=float, default=3600, help="at most, of a free machine")
    parser.add_argument("--stuck-after", type=float, default=5, help="--stuck_after of the coordinator")
    parser.add_argument("--seed", type=int, default=1, help="of events, requests and their order")
    options = parser.parse_args()
    if options.replicas < 2:
        parser.error("--replicas: with less than two, requests have nowhere to go")
    return options


def disturb(cluster, options, clients, tell):
    """Does the events while the clients ask. Returns how many were done."""
    plan = planned_events(options.seed, options.events, options.replicas, options.tp, options.drafts, options.stuck_after)
    disturber = Disturber(cluster, plan, tell)
    draw, watch, next_at = random.Random(options.seed), Stopwatch(), 0
    while not disturber.over() and watch.seconds() < options.seconds and clients.sent < options.requests:
        if time.monotonic() >= next_at and disturber.go_on():
            next_at = time.monotonic() + draw.uniform(0, 0.5)
        clients.look_for_hung()
        time.sleep(0.02)
    for node in disturber.nodes.values():  # of a run that ends early
        if node.event is not None:
            wait_until(node.go_on, 60)
    return disturber.done


def held(process):
    """(descriptors, threads)"""
    folder = pathlib.Path(f"/proc/{process.process.pid}")
    return len(list((folder / "fd").iterdir())), len(list((folder / "task").iterdir()))


def problems_afterwards(cluster, held_before):
    """What is not as before the events."""
    def idle():
        state = cluster.api.cluster()
        ready = [n for n in state["replicas"] + state["draft_nodes"] if n["state"] == "ready"]
        return (state["requests"]["running"] == state["requests"]["waiting"] == 0 and len(ready) == cluster.replicas + cluster.drafts
                and all(n["kv"]["blocks_used"] == 0 for n in ready))
    coordinator = cluster.process("coordinator")
    if not coordinator.alive():
        return [f"the coordinator has ended: {coordinator.output()[-2000:]}"]
    if not wait_until(idle, IDLE_WITHIN_S):
        return [f"not all nodes are ready and idle: {cluster.api.get('/cluster')[1]}"]
    if not wait_until(lambda: held(coordinator) <= held_before, IDLE_WITHIN_S):
        return [f"the coordinator has (descriptors, threads) {held(coordinator)}, {held_before} before"]
    return []


def run(options):
    begun = time.monotonic()

    def tell(text):
        print(f"{time.monotonic() - begun:7.1f} s  {text}", flush=True)

    # Rounds wait for drafts a short time only, as in production: a lost draft node must not look like a slow one.
    with Cluster(replicas=options.replicas, tp=options.tp, drafts=options.drafts, stuck_after=options.stuck_after,
                 wait_for_drafts=False) as cluster:
        clients = Clients(cluster.api, options.clients, options.seed, options.requests)
        tell(f"{len(clients.wanted)} answers are recorded")
        held_before = held(cluster.process("coordinator"))
        clients.start()
        try:
            done = disturb(cluster, options, clients, tell)
        finally:
            clients.stop()
        problems = problems_afterwards(cluster, held_before)
        folder = cluster.folder
    problems += [f"left behind: {process}" for process in processes_naming(folder)]
    for text in clients.failed[:5] + clients.wrong[:5] + problems:
        tell(text)
    print(f"events {done}, {clients.summary()}", flush=True)
    return bool(clients.failed or clients.wrong or clients.hung or problems or done < options.events)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that it cleans up
    sys.exit(run(arguments()))
