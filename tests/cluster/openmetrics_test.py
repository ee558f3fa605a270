#!/usr/bin/env python3
"""Optional: the parsers of the Prometheus client library read /metrics in both formats, with the same samples. Needs the package

  pip install prometheus_client
"""
import unittest

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client import parser as text_format

from cluster import Cluster

BODY = dict(prompt="SELECT", max_tokens=8, decoding="beam_search", beam_width=4)


def samples(families):
    return {(s.name, tuple(sorted((k, float(v) if k == "le" else v) for k, v in s.labels.items()))): s.value
            for family in families for s in family.samples}


class OpenMetrics(unittest.TestCase):
    def test_both_formats_say_the_same(self):
        with Cluster(coordinator_flags=("--metrics_vllm_names",)) as cluster:
            cluster.api.complete(BODY)
            opened = cluster.api.get("/metrics", {"Accept": "application/openmetrics-text"})[1]
            plain = cluster.api.get("/metrics")[1]
        families = list(openmetrics.text_string_to_metric_families(opened))
        self.assertGreater(len(families), 70)
        units = {family.name: family.unit for family in families}
        self.assertEqual(units["coppice_wire_bytes"], "bytes")
        self.assertEqual(units["vllm:time_to_first_token_seconds"], "seconds")
        found, expected = samples(families), samples(text_format.text_string_to_metric_families(plain))
        self.assertEqual(set(found), set(expected))
        moving = [name for (name, _), value in found.items() if name.startswith("coppice_generation_tokens")]
        self.assertTrue(moving)
        for name in moving:
            self.assertEqual([v for (n, _), v in found.items() if n == name], [v for (n, _), v in expected.items() if n == name])


if __name__ == "__main__":
    unittest.main(verbosity=2)
