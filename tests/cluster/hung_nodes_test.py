#!/usr/bin/env python3
"""Nodes that hang while they serve: a rank of a replica; a leader whose whole process is stopped; a draft node whose whole
process is stopped; nodes that send heartbeats while their computing thread is stopped. Their requests move to another replica
or end as replica_lost. A node that comes back either starts clean or has ended.

COPPICE_STUCK_AFTER: seconds without a step after which these tests' clusters count a node as lost. Empty: the coordinator's
default."""
import ctypes
import os
import signal
import threading
import time
import unittest

from api_client import outcome, read_events
from cluster import Cluster
from stopwatch import at_most, wait_until

STUCK_AFTER = os.environ.get("COPPICE_STUCK_AFTER", "3") or None
FAILOVER_WAIT = () if STUCK_AFTER is None else ("--failover_wait=1",)
NOTICED_WITHIN_S = 20
PROMPT = "Once upon a time, there was a little girl named Lily."
BODY = dict(prompt=PROMPT, decoding="beam_search", beam_width=4, n=4, max_tokens=40, return_token_ids=True)
LONG = dict(prompt=PROMPT, decoding="beam_sampling", beam_width=8, n=1, max_tokens=280, ignore_eos=True, return_token_ids=True)
HEAVY = dict(LONG, decoding="beam_search", beam_width=64, n=64, early_stopping="never")  # some tenths of a second of two fast cores; LONG may be over at once
LOSSY = dict(LONG, speculative=dict(method="dsbd", draft_width=4, draft_depth=2))
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
WALL = 0x40000000


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf8") as stat:
        return int(stat.read().rpartition(") ")[2].split()[1])


def ended(pid):
    """True if the process is gone or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf8") as stat:
            return stat.read().rpartition(") ")[2][0] in "ZX"
    except OSError:
        return True


class StoppedThread:
    """Stops the main thread of a process, as a debugger does, while its other threads run. Use it from one thread only."""

    def __init__(self, pid):
        self.pid, self.libc = pid, ctypes.CDLL(None, use_errno=True)

    def __enter__(self):
        if self.libc.ptrace(PTRACE_ATTACH, self.pid, None, None) != 0:
            raise OSError(f"this system forbids ptrace: {os.strerror(ctypes.get_errno())}")
        return self

    def __exit__(self, *_):
        self.libc.ptrace(PTRACE_DETACH, self.pid, None, None)
        try:  # not our child: its parent sees the end only after this process has waited for it
            if parent_of(self.pid) != os.getpid():
                os.waitpid(self.pid, os.WNOHANG | WALL)
        except OSError:
            pass


class Stream(threading.Thread):
    """A streamed completion that runs in the background. Holds its events so far, and the error if it did not end with [DONE]."""

    def __init__(self, api, body, on_first=None):
        super().__init__(daemon=True)
        self.api, self.body, self.on_first = api, body, on_first
        self.events, self.problem = [], None
        self.start()

    def run(self):
        connection, response = self.api.open_stream(self.body)
        try:
            if response.status != 200:
                self.problem = response.read()
                return
            for event in read_events(response):
                self.events.append(event)
                if self.on_first and len(self.events) == 1:
                    self.on_first()
        except (OSError, AssertionError, ValueError) as error:
            self.problem = error
        finally:
            connection.close()

    def token_ids(self):
        return [i for event in self.events if event != "[DONE]" for choice in event.get("choices", [])
                for i in choice.get("token_ids") or []]


class HungNodes(unittest.TestCase):
    def cluster(self, **options):
        flags = dict(stuck_after=STUCK_AFTER, coordinator_flags=FAILOVER_WAIT)
        return Cluster(**dict(flags, **options))

    def node(self, cluster, name):
        state = cluster.api.cluster()
        return next(n for n in state["replicas"] + state["draft_nodes"] if n["id"] == name)

    def state_is(self, cluster, name, state):
        return wait_until(lambda: self.node(cluster, name)["state"] == state)

    def metric(self, cluster, name):
        lines = cluster.api.get("/metrics")[1].splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{"))

    def assert_ended(self, process, *words):
        """Checks that the process ends by itself, prints one line that holds the words, and leaves no process behind."""
        self.assertTrue(process.wait_gone(NOTICED_WITHIN_S), process.left())
        self.assertNotEqual(process.process.returncode, 0)
        reasons = process.reasons()
        self.assertEqual(len(reasons), 1, process.output())
        for word in words:
            self.assertIn(word, reasons[0])

    def test_rank_that_hangs_is_noticed(self):
        """A rank of the only replica hangs. Its requests end as replica_lost long before their deadline, and its processes end."""
        for carrier in ("shm", "mpi"):
            with self.subTest(carrier):
                self.check_rank_that_hangs(carrier)

    def check_rank_that_hangs(self, carrier):
        with self.cluster(tp=2, drafts=0, worker_flags=(f"--communicator={carrier}",)) as cluster:
            replica = cluster.process("replica-0")
            rank = replica.ranks()[1]
            cluster.api.complete(BODY)
            others = [Stream(cluster.api, HEAVY) for _ in range(16)]  # alone, it may be over before the signal
            shown = Stream(cluster.api, LOSSY, on_first=lambda: os.kill(rank, signal.SIGSTOP))
            self.assertTrue(wait_until(lambda: shown.events))
            status, answer = cluster.api.post(dict(BODY, timeout=at_most(40)))
            self.assertEqual((status, answer["error"]["code"]), (503, "replica_lost"), answer)
            self.assertIn("replica-0", answer["error"]["message"])
            self.assertIn("no progress", answer["error"]["message"])
            for stream in (shown, *others):
                stream.join(at_most(10))
            self.assertEqual(shown.events[-1]["error"]["code"], "replica_lost")
            status, body = cluster.api.get("/ready")
            self.assertEqual(status, 503, body)
            self.assertIn("no progress", body)
            self.assertEqual(self.node(cluster, "replica-0")["state"], "lost")
            self.assertIn("no progress", self.node(cluster, "replica-0")["reason"])
            self.assertEqual(cluster.api.cluster()["state"], "lost")
            self.assert_ended(replica, "replica-0", " has been under way for ", f"rank 1 (pid {rank}) is stopped")
            self.assertTrue(cluster.process("coordinator").alive())

    def test_streams_of_a_hung_replica_go_on_elsewhere(self):
        """They continue where they were. A request that cannot be reproduced and has already streamed text ends."""
        with self.cluster(tp=2, replicas=2, drafts=0) as cluster:
            bodies = [dict(LONG, seed=seed) for seed in range(12)]
            wanted = [answer["choices"][0]["token_ids"] for answer in cluster.api.complete_all(bodies)]
            replica = cluster.process("replica-0")
            rank = replica.ranks()[1]
            load = [Stream(cluster.api, HEAVY) for _ in range(8)]  # keeps both busy until the signal
            streams = [Stream(cluster.api, body) for body in (bodies + [LOSSY] * 4)[:-1]]
            streams.append(Stream(cluster.api, LOSSY, on_first=lambda: os.kill(rank, signal.SIGSTOP)))
            for stream in load + streams:
                stream.join(at_most(60))
                self.assertFalse(stream.is_alive())
            for stream, ids in zip(streams, wanted):
                self.assertEqual(stream.events[-1], "[DONE]", stream.problem)
                self.assertEqual(stream.token_ids(), ids)
            for stream in streams[12:]:
                self.assertTrue(stream.events[-1] == "[DONE]" or stream.events[-1]["error"]["code"] == "replica_lost")
            self.assertGreater(self.metric(cluster, "coppice_failovers_total"), 0)
            self.assert_ended(replica, "replica-0")
            self.assertEqual(cluster.api.get("/ready")[0], 200)
            self.assertEqual([a["choices"][0]["token_ids"] for a in cluster.api.complete_all(bodies)], wanted)

    def test_rank_that_comes_back_in_time_is_nothing(self):
        with self.cluster(tp=2, drafts=0, stuck_after=30) as cluster:
            wanted = outcome(cluster.api.complete(BODY))
            rank = cluster.process("replica-0").ranks()[1]
            os.kill(rank, signal.SIGSTOP)
            threading.Timer(2, os.kill, (rank, signal.SIGCONT)).start()
            begin = time.monotonic()
            self.assertEqual(outcome(cluster.api.complete(BODY)), wanted)
            self.assertGreater(time.monotonic() - begin, 1)
            self.assertEqual(self.metric(cluster, "coppice_failovers_total"), 0)
            node = self.node(cluster, "replica-0")
            self.assertEqual((node["state"], node["reason"]), ("ready", None))
            self.assertTrue(wait_until(lambda: self.node(cluster, "replica-0")["longest_stall_s"] > 1))

    def test_leader_stopped_whole_is_taken_back_clean(self):
        with self.cluster(tp=2, replicas=2, drafts=0) as cluster:
            bodies = [dict(LONG, seed=seed) for seed in range(16)]
            wanted = [answer["choices"][0]["token_ids"] for answer in cluster.api.complete_all(bodies)]
            leader = cluster.process("replica-0").ranks()[0]
            load = [Stream(cluster.api, HEAVY) for _ in range(8)]  # keeps both busy until the signal
            streams = [Stream(cluster.api, body) for body in bodies[:-1]]
            streams.append(Stream(cluster.api, bodies[-1], on_first=lambda: os.kill(leader, signal.SIGSTOP)))
            self.assertTrue(self.state_is(cluster, "replica-0", "lost"))
            self.assertIn("no heartbeat", self.node(cluster, "replica-0")["reason"])
            self.assertGreater(self.metric(cluster, "coppice_failovers_total"), 0)
            # It comes back while the others still decode the requests that it had.
            time.sleep(float(STUCK_AFTER or 10) + 1)
            os.kill(leader, signal.SIGCONT)
            self.assertTrue(self.state_is(cluster, "replica-0", "ready"))
            for stream, ids in zip(streams, wanted):
                stream.join(at_most(60))
                self.assertEqual(stream.events[-1:], ["[DONE]"], stream.problem)
                self.assertEqual(stream.token_ids(), ids)
            for stream in load:
                stream.join(at_most(60))
            self.assertTrue(wait_until(lambda: self.node(cluster, "replica-0")["running"] == 0))
            self.assertTrue(wait_until(lambda: self.node(cluster, "replica-0")["kv"]["blocks_used"] == 0))
            self.assertEqual(self.metric(cluster, "coppice_invalid_updates_total"), 0)
            steps = self.node(cluster, "replica-0")["step"]
            self.assertEqual([a["choices"][0]["token_ids"] for a in cluster.api.complete_all(bodies)], wanted)
            self.assertTrue(wait_until(lambda: self.node(cluster, "replica-0")["step"] > steps))

    def test_leader_stopped_for_long_keeps_its_connections(self):
        """What was on its way when it was stopped, such as a plan for its ranks, arrives when it continues."""
        with Cluster(tp=2, replicas=2, drafts=0, stuck_after=None) as cluster:
            wanted = outcome(cluster.api.complete(BODY))
            replica = cluster.process("replica-0")
            leader = replica.ranks()[0]
            load = [Stream(cluster.api, HEAVY) for _ in range(3)]
            load.append(Stream(cluster.api, LONG, on_first=lambda: os.kill(leader, signal.SIGSTOP)))
            self.assertTrue(self.state_is(cluster, "replica-0", "lost"))
            time.sleep(14)
            load += [Stream(cluster.api, HEAVY) for _ in range(4)]
            os.kill(leader, signal.SIGCONT)
            self.assertTrue(self.state_is(cluster, "replica-0", "ready"))
            for stream in load:
                stream.join(at_most(60))
                self.assertEqual(stream.events[-1:], ["[DONE]"], stream.problem)
            for answer in cluster.api.complete_all([BODY] * 8):
                self.assertEqual(outcome(answer), wanted)
            self.assertTrue(replica.alive())
            self.assertNotIn("lost the coordinator", replica.output())

    def test_only_leader_stopped_whole_ends_its_requests_and_serves_again(self):
        with self.cluster(drafts=0) as cluster:
            wanted = outcome(cluster.api.complete(BODY))
            leader = cluster.process("replica-0").ranks()[0]
            os.kill(leader, signal.SIGSTOP)
            status, answer = cluster.api.post(dict(BODY, timeout=at_most(40)))
            self.assertEqual((status, answer["error"]["code"]), (503, "replica_lost"), answer)
            status, body = cluster.api.get("/ready")
            self.assertEqual(status, 503)
            self.assertIn("no heartbeat", body)
            os.kill(leader, signal.SIGCONT)
            self.assertTrue(wait_until(lambda: cluster.api.get("/ready")[0] == 200))
            self.assertEqual(outcome(cluster.api.complete(BODY)), wanted)

    def test_draft_node_stopped_whole_drafts_again(self):
        with self.cluster() as cluster:
            body = dict(BODY, speculative=dict(draft_width=8, draft_depth=4))

            def drafted():
                answer = cluster.api.complete(body)
                self.assertEqual(outcome(answer), wanted)
                return answer["usage"]["speculation"]["drafted_nodes"]

            wanted = outcome(cluster.api.complete(body))
            self.assertGreater(drafted(), 0)
            node = cluster.process("draft-0").process.pid
            os.kill(node, signal.SIGSTOP)
            drafted()
            self.assertTrue(self.state_is(cluster, "draft-0", "lost"))
            self.assertEqual(drafted(), 0)
            self.assertEqual(cluster.api.get("/ready")[0], 200)
            os.kill(node, signal.SIGCONT)
            self.assertTrue(self.state_is(cluster, "draft-0", "ready"))
            self.assertTrue(wait_until(lambda: drafted() > 0))

    def test_draft_node_that_beats_and_does_not_draft(self):
        with self.cluster() as cluster:
            body = dict(BODY, speculative=dict(draft_width=8, draft_depth=4))
            wanted = outcome(cluster.api.complete(body))
            node = cluster.process("draft-0")
            with StoppedThread(node.process.pid):
                self.assertEqual(outcome(cluster.api.complete(body)), wanted)
                self.assertTrue(self.state_is(cluster, "draft-0", "lost"))
                self.assertIn("no progress", self.node(cluster, "draft-0")["reason"])
                self.assert_ended(node, "draft-0", "no progress")
            answer = cluster.api.complete(body)
            self.assertEqual(outcome(answer), wanted)
            self.assertEqual(answer["usage"]["speculation"]["drafted_nodes"], 0)

    def test_leader_that_beats_and_does_not_compute(self):
        """It never takes the request from its inbox, so its heartbeats do not say that it has work."""
        with self.cluster(drafts=0) as cluster:
            replica = cluster.process("replica-0")
            leader = replica.ranks()[0]
            with StoppedThread(leader):
                status, answer = cluster.api.post(dict(BODY, timeout=at_most(40)))
                self.assertEqual((status, answer["error"]["code"]), (503, "replica_lost"), answer)
                self.assertTrue(wait_until(lambda: ended(leader)))
            self.assert_ended(replica, "replica-0", "no progress")


if __name__ == "__main__":
    unittest.main(verbosity=2)
