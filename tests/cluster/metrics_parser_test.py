#!/usr/bin/env python3
"""Optional: the parser of the Prometheus client library reads /metrics. Needs the package

  pip install prometheus_client
"""
import unittest

from prometheus_client import parser

from cluster import Cluster

BODY = dict(prompt="Once", max_tokens=8, decoding="beam_search", beam_width=4)


class MetricsParser(unittest.TestCase):
    def test_the_parser_finds_every_sample(self):
        with Cluster(coordinator_flags=("--metrics_vllm_names",)) as cluster:
            cluster.api.complete(BODY)
            text = cluster.api.get("/metrics")[1]
        families = {family.name: family for family in parser.text_string_to_metric_families(text)}
        self.assertGreater(len(families), 70)
        # The parser names the family of a counter without _total.
        self.assertEqual(families["coppice_wire_bytes"].type, "counter")
        self.assertEqual(families["coppice_model_info"].type, "gauge")
        self.assertEqual(families["vllm:time_to_first_token_seconds"].type, "histogram")
        self.assertTrue(all(family.documentation for family in families.values()))
        samples = [sample for family in families.values() for sample in family.samples]
        self.assertEqual(len(samples), sum(not line.startswith("#") for line in text.splitlines()))
        tokens = {name: [s.value for s in families[name].samples] for name in ("coppice_generation_tokens", "vllm:generation_tokens")}
        self.assertEqual(tokens["coppice_generation_tokens"], tokens["vllm:generation_tokens"])
        self.assertGreater(sum(tokens["coppice_generation_tokens"]), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
