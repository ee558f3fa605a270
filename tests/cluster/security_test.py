#!/usr/bin/env python3
"""A cluster with a key: the same answers as without; nodes with another key or none are refused with a reason, and cost no
request; strangers on its ports do no harm; what is wrong with a key file is said in one line."""
import os
import pathlib
import re
import socket
import stat
import subprocess
import tempfile
import threading
import unittest

from api_client import KEPT_BY_SANITIZERS, outcome
from cluster import BIN, DRAFT, ROOT, TARGET, Cluster, free_port, run_launcher
from stopwatch import at_most, wait_until

BODY = dict(prompt="Once upon a time, there was a", decoding="beam_search", beam_width=4, n=4, max_tokens=40,
            return_token_ids=True, speculative=dict(draft_width=8, draft_depth=4))
MOST_GROWTH = 8 << 20  # bytes of a process that strangers connect to


def make_key(path):
    subprocess.run([ROOT / "deploy/cluster_key.sh", path], check=True)
    return path


def keyed(path, **options):
    flag = (f"--cluster_key_file={path}",)
    return Cluster(coordinator_flags=flag, worker_flags=flag, draft_flags=flag, **options)


def resident_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Security(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.key, self.other = (make_key(os.path.join(self.folder.name, name)) for name in ("key", "other"))

    def tearDown(self):
        self.folder.cleanup()

    def test_answers_are_the_same_with_a_key(self):
        with Cluster(tp=2) as cluster:
            wanted = outcome(cluster.api.complete(BODY))
        for together in (False, True):
            with self.subTest(together=together), keyed(self.key, tp=2, together=together) as cluster:
                answer = cluster.api.complete(BODY)
                self.assertEqual(outcome(answer), wanted)
                self.assertGreater(answer["usage"]["speculation"]["drafted_nodes"], 0)

    def test_nodes_with_another_key_or_none_are_refused_and_cost_no_request(self):
        with keyed(self.key) as cluster:
            wanted = outcome(cluster.api.complete(BODY))
            answers, stop = [], threading.Event()

            def ask():
                while not stop.is_set():
                    answers.append(cluster.api.complete(BODY))

            asking = threading.Thread(target=ask)
            asking.start()
            try:
                for name, flags, reason in (("other", (f"--cluster_key_file={self.other}",), "another cluster key"),
                                            ("none", (), "this node has none")):
                    for role, model in (("draft", DRAFT), ("worker", TARGET)):
                        process = cluster.launch(f"{role}-{name}", [
                            BIN / f"coppice-{role}", f"--model={model}", "--threads=1", "--dtype=f32",
                            f"--coordinator={cluster.control}", *flags])
                        self.assertNotEqual(process.process.wait(timeout=at_most(30)), 0)
                        self.assertEqual(len(process.reasons()), 1, process.output())
                        self.assertIn(reason, process.reasons()[0])
                        self.assertIn(cluster.control, process.reasons()[0])
            finally:
                stop.set()
                asking.join()
            self.assertGreater(len(answers), 0)
            for answer in answers:
                self.assertEqual(outcome(answer), wanted)
            state = cluster.api.cluster()
            self.assertEqual([node["id"] for node in state["draft_nodes"]], ["draft-0"])
            self.assertEqual([node["id"] for node in state["replicas"]], ["replica-0"])
            self.assertRegex(cluster.process("coordinator").output(), r"refused \d+ connection\(s\).*cluster key")

    def test_strangers_on_the_ports_do_no_harm(self):
        with keyed(self.key) as cluster:
            wanted = outcome(cluster.api.complete(BODY))
            at = re.compile(r"draft node draft-0 at direct://127\.0\.0\.1:(\d+)")
            self.assertTrue(wait_until(lambda: at.search(cluster.process("replica-0").output())))
            draft_port = int(at.search(cluster.process("replica-0").output())[1])
            ports = [int(cluster.control.rpartition(":")[2]), draft_port]
            pids = [cluster.process(name).process.pid for name in ("coordinator", "draft-0")]
            frame = b"COPP" + b"\1\0\0\0" + bytes(8)
            halves = []
            before = None
            for flood in range(4):
                for i in range(150):
                    for port in ports:
                        stranger = socket.create_connection(("127.0.0.1", port))
                        self.addCleanup(stranger.close)
                        stranger.setblocking(False)
                        if i % 3:
                            stranger.send(frame if i % 3 == 1 else bytes(100))
                        halves.append(stranger)
                self.assertEqual(outcome(cluster.api.complete(BODY)), wanted)
                while len(halves) > 400:
                    halves.pop(0).close()
                if flood == 1:
                    before = [resident_bytes(pid) for pid in pids]
            for pid, size in zip(pids, before):
                self.assertLess(resident_bytes(pid), size + MOST_GROWTH + KEPT_BY_SANITIZERS)
            self.assertTrue(wait_until(lambda: self.closed(halves), 20), "half-open connections live on")
            answer = cluster.api.complete(BODY)
            self.assertEqual(outcome(answer), wanted)
            self.assertGreater(answer["usage"]["speculation"]["drafted_nodes"], 0)
            for process in cluster.launched:
                self.assertTrue(process.alive(), process.output())
            for name in ("coordinator", "draft-0"):
                self.assertRegex(cluster.process(name).output(), r"refused \d+ connection\(s\)")
            self.assertNotIn("dropped", cluster.process("draft-0").output())

    def closed(self, sockets):
        """Whether the other end has closed all of them."""
        for one in sockets:
            try:
                while one.recv(4096):  # ZeroMQ's greeting
                    pass
            except BlockingIOError:
                return False
            except OSError:
                pass
        return True

    def test_what_is_wrong_with_a_key_file_is_said_in_one_line(self):
        readable, broken, missing = (os.path.join(self.folder.name, name) for name in ("readable", "broken", "missing"))
        make_key(readable)
        os.chmod(readable, 0o640)
        with open(broken, "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write("coppice-cluster-key-1 0011")
        for role, model in (("coordinator", TARGET), ("worker", TARGET), ("draft", DRAFT)):
            listen = [f"--listen=127.0.0.1:{free_port()}"] if role == "coordinator" else ["--coordinator=tcp://127.0.0.1:1"]
            for path, words in ((readable, "chmod 600"), (broken, "not a cluster key"), (missing, "No such file")):
                with self.subTest(role=role, words=words):
                    result = subprocess.run([BIN / f"coppice-{role}", f"--model={model}", *listen, f"--cluster_key_file={path}"],
                                            capture_output=True, text=True, timeout=at_most(20))
                    self.assertNotEqual(result.returncode, 0)
                    lines = [line for line in result.stderr.splitlines() if line.startswith(f"coppice-{role}: ")]
                    self.assertEqual(len(lines), 1, result.stderr)
                    self.assertIn(path, lines[0])
                    self.assertIn(words, lines[0])

    def test_the_key_script_keeps_what_it_writes_private_and_overwrites_nothing(self):
        self.assertEqual(stat.S_IMODE(os.stat(self.key).st_mode), 0o600)
        text = pathlib.Path(self.key).read_text()
        self.assertRegex(text, r"\Acoppice-cluster-key-1 [0-9a-f]{64}\n\Z")
        self.assertNotEqual(text, pathlib.Path(self.other).read_text())
        again = subprocess.run([ROOT / "deploy/cluster_key.sh", self.key], capture_output=True, text=True)
        self.assertEqual(again.returncode, 1)
        self.assertIn(self.key, again.stderr)
        self.assertEqual(pathlib.Path(self.key).read_text(), text)

    def test_the_key_script_writes_to_a_pipe_and_not_to_a_terminal(self):
        script = [ROOT / "deploy/cluster_key.sh", "-"]
        first, second = (subprocess.run(script, capture_output=True, text=True, check=True) for _ in range(2))
        self.assertRegex(first.stdout, r"\Acoppice-cluster-key-1 [0-9a-f]{64}\n\Z")
        self.assertNotEqual(first.stdout, second.stdout)
        terminal, end = os.openpty()
        try:
            shown = subprocess.run(script, stdout=end, stderr=subprocess.PIPE, text=True)
        finally:
            os.close(end)
            os.close(terminal)
        self.assertEqual(shown.returncode, 2)
        self.assertIn("not shown on a terminal", shown.stderr)

    def test_the_launcher_makes_a_key_unless_it_is_told_not_to(self):
        state = os.path.join(self.folder.name, "state")
        for flags, path in (((), "made"), (("--cluster-key", "none"), None), (("--cluster-key", self.key), self.key)):
            with self.subTest(flags=flags):
                port = free_port()
                script = ROOT / "deploy/cluster.sh"
                up = run_launcher([script, "up", "--target", TARGET, "--draft", DRAFT, "--port", port, "--threads", 1,
                                   "--state", state, *flags])
                try:
                    self.assertEqual(up[1], 0, up[2] + up[3])
                    pids = [line.split()[1] for line in pathlib.Path(state, "processes").read_text().splitlines()]
                    for pid in pids:
                        command = pathlib.Path(f"/proc/{pid}/cmdline").read_text()
                        if path is None:
                            self.assertNotIn("cluster_key_file", command)
                            continue
                        file = re.search(r"--cluster_key_file=([^\0]+)", command).group(1)
                        self.assertEqual(stat.S_IMODE(os.stat(file).st_mode), 0o600)
                        if flags:
                            self.assertEqual(file, path)
                        else:
                            self.assertRegex(pathlib.Path(file).read_text(), r"\Acoppice-cluster-key-1 [0-9a-f]{64}\n\Z")
                            made = file
                finally:
                    down = run_launcher([script, "down", "--state", state])
                self.assertEqual(down[1], 0, down[3])
                if not flags:
                    self.assertFalse(os.path.exists(made))
                self.assertTrue(os.path.exists(self.key))


if __name__ == "__main__":
    unittest.main()
