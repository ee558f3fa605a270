#!/usr/bin/env python3
"""A rank is stopped while its replica starts. The others end with a line that names it, and no process is left. If the rank
continues in time, the others wait for it."""
import os
import pathlib
import signal
import tempfile
import threading
import time
import unittest

import model_folders
from cluster import Cluster
from stopwatch import Stopwatch


def reads_weights(pid):
    try:
        return "model.safetensors" in pathlib.Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


class HungStart(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.large = model_folders.large_llama(os.path.join(cls.folder.name, "large"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def stop_rank(self, process, rank, when=lambda pid: True):
        """Stops a rank of an mpirun as soon as it exists and the condition holds. Returns its pid."""
        watch = Stopwatch()
        while watch.seconds() < 30:
            pid = process.ranks().get(rank)
            while pid is not None and process.alive():
                if when(pid):
                    os.kill(pid, signal.SIGSTOP)
                    return pid
            time.sleep(0.001)
        raise AssertionError(f"rank {rank} was never there\n{process.output()}")

    def ends_naming(self, rank, together=False, **when):
        cluster = Cluster(target=self.large, tp=2, drafts=0, together=together, worker_flags=("--start_deadline=5",))
        cluster.start()
        try:
            launched = cluster.process("mpirun" if together else "replica-0")
            named = rank + 1 if together else rank  # there the coordinator is rank 0
            pid = self.stop_rank(launched, named, **when)
            self.assertTrue(launched.wait_gone(40), launched.output())
            self.assertNotEqual(launched.process.returncode, 0)
            reasons = launched.reasons()
            self.assertTrue(reasons, launched.output())
            for reason in reasons:
                self.assertIn(f"rank {named} (pid {pid}) is stopped", reason)
                self.assertIn("start-up stands still", reason)
        finally:
            cluster.stop()

    def test_follower_stops_in_mpi_init(self):
        self.ends_naming(1)

    def test_leader_stops_in_mpi_init(self):
        self.ends_naming(0)

    def test_follower_stops_while_it_reads_weights(self):
        self.ends_naming(1, when=reads_weights)

    def test_leader_stops_while_it_reads_weights(self):
        self.ends_naming(0, when=reads_weights)

    def test_rank_stops_under_one_mpirun(self):
        self.ends_naming(1, together=True, when=reads_weights)

    def start_with_a_pause(self):
        """Stops a rank for two seconds. Returns how many seconds the cluster then took to be ready."""
        cluster = Cluster(tp=2, drafts=0)
        cluster.start()
        try:
            pid = self.stop_rank(cluster.process("replica-0"), 1)
            continues = threading.Timer(2, os.kill, (pid, signal.SIGCONT))
            continues.start()
            begin = time.monotonic()
            cluster.wait_ready()
            took = time.monotonic() - begin
            continues.join()
            cluster.api.complete(dict(prompt="a", max_tokens=4))
            return took
        finally:
            cluster.stop()

    def test_rank_that_comes_back_in_time_is_waited_for(self):
        took = []
        while max(took, default=0) < 1 and len(took) < 5:  # on a busy machine it may have started before it is stopped
            took.append(self.start_with_a_pause())
        self.assertGreater(max(took), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
