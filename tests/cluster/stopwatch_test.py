#!/usr/bin/env python3
"""A stopwatch counts more slowly while the machine is busy."""
import subprocess
import sys
import time
import unittest

from stopwatch import CORES, SLOWEST, Stopwatch, share, wait_until


class BusyLoops:
    """So many processes that each want a core."""

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        self.processes = [subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
                          for _ in range(self.count)]
        for process in self.processes:
            process.stdout.readline()

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()


class StopwatchTest(unittest.TestCase):
    def test_counts_more_slowly_on_a_busy_machine(self):
        with BusyLoops(3 * CORES):
            watch, begun = Stopwatch(), time.monotonic()
            time.sleep(2)
            part = watch.seconds() / (time.monotonic() - begun)
        self.assertLess(part, 0.5)  # each loop gets a third of a core
        self.assertGreaterEqual(part, 0.99 / SLOWEST)

    def test_never_faster_than_the_clock(self):
        begun, watch = time.monotonic(), Stopwatch()
        while time.monotonic() < begun + 0.3:
            self.assertLessEqual(share(), 1)
        self.assertLessEqual(watch.seconds(), time.monotonic() - begun)

    def test_gives_up(self):
        self.assertFalse(wait_until(lambda: False, 0.1))
        self.assertTrue(wait_until(lambda: True, 0))


if __name__ == "__main__":
    unittest.main(verbosity=2)
