#!/usr/bin/env python3
"""A cluster that cannot start says why in one line, which names the file, the tensor and what was expected. It ends with a
non-zero status and leaves no process and no shared memory: under one mpirun, as separate processes, and through
deploy/cluster.sh."""
import os
import subprocess
import tempfile
import time
import unittest

import model_folders
from cluster import BIN, DRAFT, ROOT, TARGET, Cluster, folders_left, free_port, processes_naming, run_launcher
from stopwatch import Stopwatch, at_most

# What is wrong with the target: (function that makes it, words that the one line must hold)
BROKEN_TARGETS = {
    "missing checkpoint": (model_folders.without_checkpoint, ["model.safetensors"]),
    "truncated checkpoint": (model_folders.truncated, ["model.safetensors"]),
    "truncated header": (lambda out: model_folders.truncated(out, keep=0.0001), ["model.safetensors"]),
    "wrong shape": (model_folders.with_wrong_shape, ["model.layers.1.mlp.up_proj.weight", "[64, 172]", "[172, 64]"]),
    "missing tensor": (model_folders.without_tensor, ["model.layers.2.self_attn.k_proj.weight"]),
    "other vocabulary": (lambda out: model_folders.with_config(out, vocab_size=4096),
                         ["model.embed_tokens.weight", "4096", "512"]),
    "missing config field": (lambda out: model_folders.with_config(out, hidden_size=None), ["config.json", "hidden_size"]),
    "unknown architecture": (lambda out: model_folders.with_config(out, architectures=["MambaForCausalLM"]),
                             ["config.json", "MambaForCausalLM"]),
    "tokenizer that does not match": (model_folders.with_larger_tokenizer, ["tokenizer", "552", "512"]),
    "missing tokenizer": (model_folders.without_tokenizer, ["tokenizer"]),
}


class StartFailure(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def ends_with(self, cluster, words):
        """Checks that a process of the cluster ends by itself and in time, and that the first to end prints one line that holds
        the words."""
        cluster.start()
        try:
            watch = Stopwatch()
            while all(process.alive() for process in cluster.launched):
                self.assertLess(watch.seconds(), 30, "nothing ended\n" + "".join(p.output() for p in cluster.launched))
                time.sleep(0.05)
            ended = next(process for process in cluster.launched if not process.alive())
            self.assertNotEqual(ended.process.returncode, 0)
            self.assertTrue(ended.wait_gone(3), "processes are left")
            reasons = ended.reasons()
            self.assertEqual(len(reasons), 1, ended.output())
            for word in words:
                self.assertIn(word, reasons[0])
        finally:
            cluster.stop()

    def test_broken_target_under_one_mpirun(self):
        for name, (make, words) in BROKEN_TARGETS.items():
            with self.subTest(name):
                self.ends_with(Cluster(target=make(self.path(name.replace(" ", "-"))), tp=2, together=True), words)

    def test_draft_of_other_vocabulary(self):
        draft = model_folders.random_llama(self.path("draft"), vocab=1024)
        for together in (True, False):
            with self.subTest(together=together):
                self.ends_with(Cluster(draft=draft, together=together), ["1024", "512"])

    def test_more_ranks_than_heads(self):
        self.ends_with(Cluster(tp=9, together=True), ["num_attention_heads 8", "9 ranks"])

    def test_coordinator_that_never_answers(self):
        result = subprocess.run([BIN / "coppice-draft", f"--model={DRAFT}", f"--coordinator=tcp://127.0.0.1:{free_port()}"],
                                capture_output=True, text=True, timeout=at_most(60))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("tcp://127.0.0.1", result.stderr)

    def test_port_in_use(self):
        with Cluster(drafts=0) as running:
            cluster = Cluster(drafts=0, together=True)
            cluster.port = running.port
            self.ends_with(cluster, [str(running.port)])

    def test_bad_flags(self):
        elsewhere = "--coordinator=tcp://127.0.0.1:1"
        cases = [("coordinator", "--listen=nowhere"), ("worker", "--dtype=f8", elsewhere), ("worker", "--kv_bytes=-1", elsewhere),
                 ("worker", "--max_rows=1", elsewhere), ("draft", "--threads=-1", elsewhere), ("draft", "--no_such_flag"),
                 ("worker", "--log_level=loud"), ("worker", "--tp=1"), ("worker", "--draft_deadline_min=3", elsewhere),
                 ("worker", "--draft_deadline_max=nan", elsewhere), ("worker", "--heartbeat_interval=0", elsewhere),
                 ("coordinator", "--heartbeat_interval=nan", "--listen=127.0.0.1:0", "--control_listen=tcp://127.0.0.1:*")]
        for role, flag, *others in cases:
            with self.subTest(role=role, flag=flag):
                result = subprocess.run([BIN / f"coppice-{role}", f"--model={TARGET}", flag, *others],
                                        capture_output=True, text=True, timeout=at_most(60))
                self.assertNotEqual(result.returncode, 0)
                named = "coordinator" if flag == "--tp=1" else flag.split("=")[0].lstrip("-")  # without mpirun, a worker also needs --coordinator
                self.assertIn(named, result.stderr)

    def test_cluster_script_passes_the_reason_on(self):
        broken = model_folders.with_wrong_shape(self.path("wrong"))
        drafts = model_folders.random_llama(self.path("draft"), vocab=1024)
        for target, draft, words in ((broken, DRAFT, ["up_proj", "[172, 64]"]), (TARGET, drafts, ["1024", "512"])):
            with self.subTest(words=words):
                state = self.path("state")
                port = str(free_port())
                pid, status, _, errors = run_launcher(
                    [ROOT / "deploy/cluster.sh", "up", "--target", target, "--draft", draft, "--tp", "2", "--port", port,
                     "--state", state, "--dtype", "f32", "--threads", "1"])
                self.assertEqual(status, 1)
                for word in words:
                    self.assertIn(word, errors)
                self.assertEqual(folders_left(pid), [])
                self.assertFalse(os.path.exists(state))
                self.assertFalse(os.path.exists(state + ".failed"))  # it was found before anything ran
                self.assertEqual(processes_naming(f"127.0.0.1:{port}") + processes_naming(self.folder.name), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
