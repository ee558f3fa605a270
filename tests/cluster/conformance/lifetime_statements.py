"""Statements that need a cluster of their own: 1, 2, 15, 58, 60, 68, 70, 73, 74 and the end of 80."""
import json
import os
import pathlib
import signal
import threading
import time

from fixture import (ADMIN, MARKER, PROMPT, SHORT, USER, ConformanceCluster, Statements, Stopwatch, at_most, essence, joined, read_events,
                     together, wait_until)

LONG = dict(prompt=PROMPT, max_tokens=280, ignore_eos=True, return_token_ids=True)


class Lifetime(Statements):
    def up(self, cluster):
        try:
            return cluster.get("/health", None).status == 200
        except OSError:
            return False

    def own(self, **arguments):
        cluster = ConformanceCluster(**arguments)
        cluster.start()
        self.addCleanup(cluster.stop)
        self.assertTrue(wait_until(lambda: self.up(cluster), 30))
        self.cluster = cluster
        return cluster

    def join(self, cluster):
        """A replica joins the cluster."""
        cluster.launch("replica-late", [*cluster.program("worker", f"--model={cluster.target}", "--tp=1", "--dtype=f32", "--threads=1",
                                                         f"--coordinator={cluster.control}", "--replica_id=replica-0")])

    def test_01_02_73_without_a_replica(self):
        cluster = self.own(replicas=0, drafts=0)
        ready = cluster.get("/ready", None)
        self.assertEqual((ready.status, ready.error["code"]), (503, "no_replica"))
        self.assertTrue(ready.error["message"])
        self.assertTrue(cluster.get("/version", None).json["version"])
        start = time.monotonic()
        answer = cluster.post(dict(SHORT, timeout=0.5))
        self.assertEqual((answer.status, answer.error["code"]), (503, "no_replica"))
        self.assertTrue(1 <= int(answer.headers["Retry-After"]) <= 60)
        self.assertGreater(time.monotonic() - start, 0.4)
        # A replica that joins in time serves a request that waits.
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(cluster.post(dict(SHORT, timeout=at_most(60))).status))
        waiting.start()
        time.sleep(0.2)
        self.join(cluster)
        waiting.join()
        self.assertEqual(answers, [200])
        self.assertEqual(cluster.get("/ready", None).status, 200)
        # None is left.
        replica = cluster.process("replica-late")
        os.kill(replica.process.pid, signal.SIGKILL)
        self.assertTrue(wait_until(lambda: cluster.get("/ready", None).status == 503))
        self.assertEqual(cluster.get("/health", None).status, 200)

    def test_68_keep_alive_comments_while_queued(self):
        cluster = self.own(replicas=0, drafts=0)
        connection, response = cluster.open_stream(dict(SHORT, timeout=at_most(60)))
        watch = Stopwatch()
        self.assertEqual(response.readline(), b": keep-alive\n")
        self.assertLess(watch.seconds(), 2)
        self.join(cluster)
        self.assertTrue(response.read().decode().endswith("data: [DONE]\n\n"))
        connection.close()

    def test_70_a_full_queue(self):
        cluster = self.own(replicas=0, drafts=0, limits=dict(max_queue=2))
        results = [None, None]

        def wait(i):
            results[i] = cluster.post(dict(SHORT, timeout=at_most(60))).status
        threads = [threading.Thread(target=wait, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        self.assertTrue(wait_until(lambda: cluster.api.cluster()["requests"]["waiting"] == 2))
        took = []
        for _ in range(10):  # any may meet a busy machine
            watch = Stopwatch()
            answer = cluster.post(SHORT)
            took.append(watch.seconds())
            self.assertEqual((answer.status, answer.error["code"]), (429, "queue_full"))
            self.assertTrue(1 <= int(answer.headers["Retry-After"]) <= 60)
        self.assertLess(min(took), 0.1)
        self.join(cluster)
        for thread in threads:
            thread.join()
        self.assertEqual(results, [200, 200])

    def test_58_80_a_killed_draft_node(self):
        cluster = self.own()
        cluster.wait_ready()
        bodies = [dict(LONG, seed=i, speculative=dict(draft_width=4, draft_depth=4)) for i in range(4)]
        wanted = [essence(self.served(dict(body, speculative=False))) for body in bodies]
        draft = cluster.process("draft-0")
        killer = threading.Timer(0.3, os.kill, (draft.process.pid, signal.SIGKILL))
        killer.start()
        answers = together([lambda b=b: self.served(b) for b in bodies])
        killer.join()
        self.assertEqual([essence(answer) for answer in answers], wanted)
        answers = together([lambda b=b: self.served(b) for b in bodies])  # with certainty after it
        self.assertEqual([essence(answer) for answer in answers], wanted)
        self.assertTrue(all(a["usage"]["speculation"]["plain_rounds"] > 0 for a in answers))

        def fallbacks():
            return sum(v for s, v in cluster.metrics().items() if s.startswith("coppice_rounds_without_draft_total"))
        self.assertTrue(wait_until(lambda: fallbacks() > 0))
        self.assertTrue(wait_until(lambda: cluster.api.cluster()["draft_nodes"][0]["state"] == "lost", 3 * 0.5 + 1))
        self.assertTrue(any("draft-0" in event["what"] and "lost" in event["what"] for event in cluster.api.cluster()["events"]))

    def test_60_a_killed_replica(self):
        cluster = self.own(replicas=2)
        cluster.wait_ready()
        body = dict(LONG, seed=5, n=48)  # it must not be over when the replica is killed
        wanted = {c["index"]: (c["text"], c["token_ids"], c["finish_reason"]) for c in self.served(body)["choices"]}
        other = dict(target="replica:replica-1")  # so it is known who serves
        self.assertEqual(cluster.admin("/admin/drain", other).status, 202)
        connection, response = cluster.open_stream(body)
        events = read_events(response)
        first = [next(events) for _ in range(3)]
        self.assertEqual(cluster.admin("/admin/undrain", other).status, 202)
        for pid in cluster.process("replica-0").ranks().values():
            os.kill(pid, signal.SIGKILL)
        rest = list(events)
        connection.close()
        self.assertEqual(rest[-1], "[DONE]")
        self.assertEqual(joined(first + rest[:-1]), wanted)
        self.assertGreater(sum(v for s, v in cluster.metrics().items() if s.startswith("coppice_failovers_total")), 0)

    def test_74_15_sigterm_and_the_logs(self):
        cluster = self.own()
        cluster.wait_ready()
        cluster.post(dict(SHORT, stop=[MARKER], user=MARKER))
        cluster.post(dict(SHORT, temperature=9))
        cluster.get("/v1/models", USER + "x")
        running = [cluster.open_stream(dict(LONG, seed=i, n=48)) for i in range(3)]  # seconds of work
        coordinator = cluster.process("coordinator")
        coordinator.process.send_signal(signal.SIGTERM)
        self.assertTrue(wait_until(lambda: cluster.get("/ready", None).status == 503, 5))
        self.assertEqual(cluster.get("/health", None).status, 200)
        for connection, response in running:
            self.assertTrue(response.read().decode().endswith("data: [DONE]\n\n"))
            connection.close()
        self.assertEqual(coordinator.process.wait(at_most(30)), 0)
        logs = [path.read_text(errors="replace") for path in pathlib.Path(cluster.folder).glob("*.log")]
        self.assertGreaterEqual(len(logs), 3)
        self.assertTrue(any("request id=" in log and "key=alice" in log for log in logs))
        for secret in (MARKER, USER, ADMIN, "his mom"):
            self.assertFalse(any(secret in log for log in logs), secret)
