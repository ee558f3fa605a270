#!/usr/bin/env python3
"""What soak_test.py calls growth: notes of processes that leak and of some that do not."""
import os
import random
import unittest

from soak_notes import GROWTH_BYTES, growth, note, problems_of, slope

MIB = 1 << 20


def notes(bytes_at, descriptors=lambda i: 20, threads=lambda i: 6, count=40):
    return [(10.0 * i, {"bytes": int(bytes_at(i)), "descriptors": descriptors(i), "threads": threads(i)}) for i in range(count)]


class Notes(unittest.TestCase):
    def test_a_leak_is_found_and_its_size_said(self):
        leaking = notes(lambda i: 30 * MIB + i * MIB / 4)
        self.assertAlmostEqual(growth(leaking) / MIB, 39 / 4, places=3)
        self.assertRegex(problems_of("draft-0", leaking)[0], r"draft-0: memory grows by 9\.8 MiB in 390 s; allowed: 8\.0")

    def test_a_leak_under_noise_is_found(self):
        draw = random.Random(1)
        self.assertEqual(len(problems_of("a", notes(lambda i: 30 * MIB + i * MIB / 4 + draw.uniform(0, 6 * MIB)))), 1)

    def test_noise_and_peaks_are_no_leak(self):
        draw = random.Random(2)
        self.assertEqual(problems_of("a", notes(lambda i: 30 * MIB + draw.uniform(0, 6 * MIB))), [])
        self.assertEqual(problems_of("a", notes(lambda i: (300 if i in (5, 30, 38) else 30) * MIB)), [])

    def test_a_large_process_may_grow_by_its_share(self):
        self.assertEqual(problems_of("a", notes(lambda i: 1000 * MIB + i * MIB * 25 / 39)), [])
        self.assertEqual(len(problems_of("a", notes(lambda i: 1000 * MIB + i * MIB * 35 / 39))), 1)

    def test_a_descriptor_or_thread_that_was_gained_is_found(self):
        self.assertEqual(problems_of("c", notes(lambda i: MIB, descriptors=lambda i: 20 + (i > 20))), ["c: 21 descriptors, 20 after the warm-up (now 21)"])
        self.assertEqual(problems_of("c", notes(lambda i: MIB, threads=lambda i: 6 + i // 30)), ["c: 7 threads, 6 after the warm-up (now 7)"])
        self.assertEqual(problems_of("c", notes(lambda i: MIB, descriptors=lambda i: 20 + i % 2)), [])  # closed a moment later

    def test_a_shrinking_process_and_few_notes_are_no_problem(self):
        self.assertEqual(problems_of("a", notes(lambda i: 90 * MIB - i * MIB)), [])
        self.assertEqual(slope([(1.0, 5.0)]), 0)
        self.assertEqual(problems_of("a", notes(lambda i: i * GROWTH_BYTES, count=1)), [])

    def test_a_real_process_is_noted(self):
        before = note(os.getpid())
        kept, held = open(os.devnull), bytearray(b"a" * (32 * MIB))
        after = note(os.getpid())
        self.assertEqual(after["descriptors"], before["descriptors"] + 1)
        self.assertGreater(after["bytes"] - before["bytes"], len(held) * 3 // 4)
        self.assertGreaterEqual(after["threads"], 1)
        kept.close()


if __name__ == "__main__":
    unittest.main()
