"""Disturbances of the nodes of a cluster: SIGKILL, and SIGSTOP for a time, of leaders, other ranks, launchers and draft nodes. What has
ended is started again."""
import dataclasses
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cluster import send_signal  # noqa: E402
from stopwatch import Stopwatch  # noqa: E402

BACK_WITHIN_S = 120  # on a stopwatch; a node that takes longer to serve again has failed
LOST_AFTER_S = 1.5  # three heartbeats


@dataclasses.dataclass
class Event:
    node: str
    part: str  # leader, rank N, launcher or process
    stop_s: float  # 0: killed
    restart_after_s: float  # if it has ended

    def __str__(self):
        how = f"SIGSTOP for {self.stop_s:.1f} s of" if self.stop_s else "SIGKILL of"
        return f"{how} {self.part} of {self.node}" if self.part != "process" else f"{how} {self.node}"


def planned_events(seed, count, replicas, tp, drafts, stuck_after_s):
    """Events drawn from the seed. A stop is shorter or longer than the time after which a node is lost, or than --stuck_after."""
    draw = random.Random(seed)
    events = []
    for _ in range(count):
        if drafts and draw.random() < 0.35:
            node, part = f"draft-{draw.randrange(drafts)}", "process"
        else:
            node, part = f"replica-{draw.randrange(replicas)}", draw.choice(["leader", "launcher", *(f"rank {i}" for i in range(1, tp))])
        length = draw.choice((0, 0, draw.uniform(0.1, 0.8 * LOST_AFTER_S), draw.uniform(1.2 * LOST_AFTER_S, 3 * LOST_AFTER_S),
                              draw.uniform(stuck_after_s, 1.5 * stuck_after_s)))
        events.append(Event(node, part, length, draw.choice((0, draw.uniform(0, 2 * LOST_AFTER_S)))))
    return events


class Node:
    """A replica or a draft node: whole, or disturbed until it serves again."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        self.is_replica = name.startswith("replica")
        self.launched = cluster.process(name)
        self.event = None  # by which it is disturbed
        self.restarts = 0

    def pid(self, part):
        if part in ("launcher", "process"):
            return self.launched.process.pid
        return self.launched.ranks()[0 if part == "leader" else int(part.split()[1])]

    def disturb(self, event):
        self.event, self.watch, self.ended_at = event, Stopwatch(), None
        self.pid_disturbed = self.pid(event.part)
        self.resume_at = time.monotonic() + event.stop_s
        os.kill(self.pid_disturbed, signal.SIGSTOP if event.stop_s else signal.SIGKILL)

    def go_on(self):
        """Does what is next to bring it back. True if it serves again."""
        if self.resume_at is not None and time.monotonic() >= self.resume_at:
            self.resume_at = None
            if self.event.stop_s:
                send_signal(self.pid_disturbed, signal.SIGCONT)
        if not self.launched.left():
            self.ended_at = self.ended_at or time.monotonic()
            if time.monotonic() >= self.ended_at + self.event.restart_after_s:
                self.restart()
        if self.watch.seconds() > BACK_WITHIN_S:
            raise AssertionError(f"{self.name} does not serve {BACK_WITHIN_S} s after {self.event}: processes {self.launched.left()}, "
                                 f"/cluster {self.cluster.api.get('/cluster')[1]}, its log ends: {self.launched.output()[-2000:]}")
        if self.resume_at is None and self.launched.alive() and self.serves():
            self.event = None
        return self.event is None

    def restart(self):
        self.cluster.launched.remove(self.launched)
        self.launched.process.wait()
        self.launched = (self.cluster.start_replica if self.is_replica else self.cluster.start_draft)(self.name)
        self.ended_at, self.resume_at = None, None
        self.restarts += 1

    def serves(self):
        """Whether the coordinator holds these processes for ready; under which name does not matter."""
        state = self.cluster.api.cluster()
        if self.is_replica:
            pids = set(self.launched.ranks().values())
            return any(n["state"] == "ready" and {rank["pid"] for rank in n["ranks"]} == pids for n in state["replicas"])
        return any(n["state"] == "ready" and n["id"].startswith(self.name) for n in state["draft_nodes"])


class Disturber:
    """Does the planned events in about their order. An event of a replica waits until every other replica is whole, so that the
    requests have one to go to; draft nodes may all be disturbed at once."""

    def __init__(self, cluster, events, tell):
        self.events, self.tell, self.done = list(events), tell, 0
        self.nodes = {name: Node(cluster, name) for name in [f"replica-{i}" for i in range(cluster.replicas)]
                      + [f"draft-{i}" for i in range(cluster.drafts)]}

    def allowed(self, event):
        node = self.nodes[event.node]
        return all(n.event is None for n in self.nodes.values() if n is node or n.is_replica and node.is_replica)

    def over(self):
        return not self.events and all(node.event is None for node in self.nodes.values())

    def go_on(self):
        for node in self.nodes.values():
            if node.event is not None and node.go_on():
                self.tell(f"  {node.name} serves again")
        event = next((e for e in self.events[:len(self.nodes)] if self.allowed(e)), None)
        if event is None:
            return False
        self.events.remove(event)
        self.done += 1
        self.nodes[event.node].disturb(event)
        self.tell(f"event {self.done}: {event}")
        return True
