#!/usr/bin/env python3
"""Weights of target and draft node as int4 and int8: the answers of each distribution are those of the same cluster without drafts, tokens and
scores, and each program says which weights it has."""
import unittest

from api_client import outcome
from cluster import Cluster
from stopwatch import wait_until
from exactness_test import DRAFTED, requests, speculation


FORMATS = {"int8": "Q8_0", "int4": "Q4_0"}


class WeightTypes(unittest.TestCase):
    def check(self, target, draft):
        with Cluster(worker_flags=[f"--weight_dtype={target}"], draft_flags=[f"--weight_dtype={draft}"]) as cluster:
            for program, kept in (("replica-0", target), ("draft-0", draft)):
                said = f"MB of weights ({FORMATS[kept]})"
                self.assertTrue(wait_until(lambda: said in cluster.process(program).output()), cluster.process(program).output())
            accepted = 0
            for name, body in requests():
                with self.subTest(request=name, target=target, draft=draft):
                    plain = cluster.api.complete(dict(body, speculative=False))
                    drafted = cluster.api.complete(dict(body, **DRAFTED))
                    self.assertEqual(outcome(drafted), outcome(plain))
                    accepted += speculation(drafted)["accepted_nodes"]
            self.assertGreater(accepted, 0)

    def test_1_target_in_int4_draft_in_int8(self):
        self.check("int4", "int8")

    def test_2_target_in_int8_draft_in_int4(self):
        self.check("int8", "int4")


if __name__ == "__main__":
    unittest.main()
