#!/usr/bin/env python3
"""A CUDA build where no GPU can be used: --backend=cuda ends with one clear message, and everything on the CPU is as before."""
import os
import subprocess
import unittest

from cluster import BIN, ROOT, Cluster, StartFailure
from stopwatch import at_most

MODEL = ROOT / "tests/models/stories260k"
# The first: no driver. The others: a driver without a device that this process may use, or one that is too old.
WHY = r"needs an NVIDIA driver, and this machine has none|finds no device: see nvidia-smi|driver of this machine is too old"
HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}


class CudaMissing(unittest.TestCase):
    def test_one_message_and_an_end(self):
        for name, flags in (("coppice-worker", ("--replica_id=r",)), ("coppice-draft", ("--node_id=d",))):
            with self.subTest(name):
                ended = subprocess.run([BIN / name, f"--model={MODEL}", "--backend=cuda", "--coordinator=tcp://127.0.0.1:1", *flags],
                                       capture_output=True, text=True, timeout=at_most(120), env={**os.environ, **HIDDEN})
                self.assertEqual(ended.returncode, 1, ended.stdout + ended.stderr)
                errors = [line for line in (ended.stdout + ended.stderr).splitlines() if "error" in line.lower() or "CUDA" in line]
                self.assertEqual(len(errors), 1, errors)
                self.assertRegex(errors[0], WHY)

    def test_a_cluster_says_it_too(self):
        with self.assertRaises(StartFailure) as failure:
            with Cluster(target=MODEL, drafts=0, worker_flags=("--backend=cuda",), environments={"replica-0": HIDDEN}):
                pass
        self.assertRegex(str(failure.exception), WHY)

    def test_the_cpu_as_before(self):
        with Cluster(target=MODEL, draft=MODEL) as cluster:
            self.assertIn("cpu ", cluster.process("replica-0").output())
            answer = cluster.api.complete(dict(prompt="Once upon a time", max_tokens=8, temperature=0))
            self.assertTrue(answer["choices"][0]["text"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
