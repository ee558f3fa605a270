#!/usr/bin/env python3
"""Minutes or days of mixed requests to a coordinator, a replica and a draft node, and nothing grows. Clients send valid requests of all
reproducible methods and compare each answer with the first one, beams, streams, formats and prompts that no cache has, invalid requests,
requests that they abandon, requests that are cut off, and questions about the server. From time to time they pause, and the memory,
descriptors and threads of each idle process are noted.

  soak_test.py                    # 75 seconds
  soak_test.py --minutes 1440     # a day; a table each minute

After two fifths of the time (at most ten minutes), in which caches fill, the memory of a process may grow by 3 % or 8 MB, whichever is more:
the slope of its resident memory, the median over all pairs of notes, times the remaining time. No descriptor and no thread may be gained.
Exits with 1 if one of these fails, an answer is wrong, refused or missing, or the cluster is not idle when nothing is asked.
"""
import argparse
import signal
import sys
import time

from cluster import DRAFT, Cluster
from soak_clients import KINDS, SoakClients
from soak_notes import growth, note, problems_of
from stopwatch import wait_until

NOTES = 24            # of a short run; at most one each MOST_BETWEEN_S
LEAST_BETWEEN_S, MOST_BETWEEN_S = 2.5, 30
TABLE_EACH_S = 60
IDLE_WITHIN_S = 60
WARM_UP_SHARE, WARM_UP_MOST_S = 0.4, 600
BLOCK_BYTES = 16 * 2 * 5 * 4 * 8 * 4  # of stories260k: tokens, K and V, layers, KV heads, head dimension, f32
POOL_BLOCKS = 250  # small, so that all of it is in use before the memory is watched


class Soak:
    def __init__(self, options, tell):
        self.options, self.tell = options, tell
        self.seconds = options.minutes * 60
        self.warm_s = min(WARM_UP_MOST_S, WARM_UP_SHARE * self.seconds)
        self.between_s = min(MOST_BETWEEN_S, max(LEAST_BETWEEN_S, self.seconds / NOTES))
        self.notes = {}     # {name: [(seconds, note)]}
        self.problems = []

    def processes(self, cluster):
        """{name: pid}. A replica is the mpirun that starts it, and its ranks."""
        found = {}
        for launched in cluster.launched:
            found[launched.name] = launched.process.pid
            found.update((f"{launched.name} rank {rank}", pid) for rank, pid in launched.ranks().items())
        return found

    def idle(self, cluster):
        state = cluster.api.cluster()
        nodes = state["replicas"] + state["draft_nodes"]
        return (state["requests"]["running"] == state["requests"]["waiting"] == 0
                and all(n["state"] == "ready" and n["kv"]["blocks_used"] == 0 for n in nodes))

    def take_notes(self, cluster, clients, at_s):
        """Lets the clients pause, waits until nothing runs, and notes what each process holds. False if a process ended or stays busy."""
        with clients.paused():
            for launched in cluster.launched:
                if not launched.alive():
                    self.problems.append(f"{launched.name} has ended: {launched.output()[-2000:]}")
                    return False
            if not wait_until(lambda: self.idle(cluster), IDLE_WITHIN_S):
                self.problems.append(f"not idle though nothing is asked: {cluster.api.get('/cluster')[1]}")
                return False
            time.sleep(0.3)  # connections that were cut off are closed
            for name, pid in self.pids.items():
                self.notes.setdefault(name, []).append((at_s, note(pid)))
        return True

    def warm(self, name):
        return [entry for entry in self.notes.get(name, []) if entry[0] >= self.warm_s]

    def table(self, at_s, clients):
        self.tell(f"{at_s:.0f} s: {clients.summary()}")
        for name, notes in self.notes.items():
            held, warm = notes[-1][1], self.warm(name)
            grown = f"{growth(warm) / 2**20:+7.2f} MiB" if len(warm) > 1 else "warming up"
            self.tell(f"  {name:20} {held['bytes'] / 2**20:8.1f} MiB {grown}, {held['descriptors']:4} descriptors, {held['threads']:3} threads")

    def run(self):
        """The problems that were found."""
        flags = [f"--kv_bytes={BLOCK_BYTES * (POOL_BLOCKS + 1)}"]
        with Cluster(draft=DRAFT, worker_flags=flags, draft_flags=flags, coordinator_flags=["--chat_template=chatml"]) as cluster:
            self.pids = self.processes(cluster)
            clients = SoakClients(cluster.api, self.options.clients, self.options.seed)
            clients.start()
            begun = table_at = time.monotonic()
            try:
                while (at_s := time.monotonic() - begun) < self.seconds + self.between_s and not clients.faults():
                    if not self.take_notes(cluster, clients, at_s):
                        break
                    if time.monotonic() >= table_at:
                        self.table(at_s, clients)
                        table_at += TABLE_EACH_S
                    clients.wait(self.between_s)
            finally:
                clients.stop()
            self.table(time.monotonic() - begun, clients)
            for name in self.pids:
                if len(self.warm(name)) > 1:
                    self.problems += problems_of(name, self.warm(name))
            self.problems += clients.faults()
            self.problems += [f"no {kind} was sent: the run is too short" for kind in KINDS if clients.counts[kind] == 0]
        return self.problems


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.25, help="(%(default)s)")
    parser.add_argument("--clients", type=int, default=6, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the requests and their order (%(default)s)")
    options = parser.parse_args()
    if options.minutes * 60 < 8 * LEAST_BETWEEN_S:
        parser.error(f"--minutes: at least {8 * LEAST_BETWEEN_S / 60:.2g}, for notes enough")
    return options


def main():
    options = arguments()
    problems = Soak(options, lambda text: print(text, flush=True)).run()
    for problem in problems:
        print(f"problem: {problem}")
    print("problems: %d" % len(problems))
    return bool(problems)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that it cleans up
    sys.exit(main())
