#!/usr/bin/env python3
"""Metrics of a whole cluster: bytes that nodes count, vLLM's names, one format."""
import re
import unittest

from cluster import DRAFT, ROOT, TARGET, Cluster
from stopwatch import wait_until

PROMPT = "One day, Tom and his mom went to the store."
BODY = dict(prompt=PROMPT, decoding="beam_search", beam_width=4, max_tokens=12, speculative=dict(draft_width=4, draft_depth=3))
OPEN_METRICS = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
BYTES = re.compile(r'coppice_(bytes_read|wire_bytes)_total\{(?:channel="(\w+)"|kind="(\w+)",role="(\w+)")\} (\S+)')


def byte_counters(cluster):
    """{"draft kv": bytes, "control": bytes, ...}"""
    text = cluster.api.get("/metrics")[1]
    return {channel or f"{role} {kind}": float(value) for _, channel, kind, role, value in BYTES.findall(text)}


def marked_names():
    """The metrics that the table of docs/api.md 5 marks with =."""
    section = (ROOT / "docs/api.md").read_text().split("## 5. Metrics")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return {name for cell in cells for name in re.findall(r"(\w+) =", cell.replace("(=", ""))}


class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(tp=2, coordinator_flags=("--metrics_vllm_names",))
        cls.cluster.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)

    def ask(self, **headers):
        connection = self.cluster.api.connect()
        try:
            connection.request("GET", "/metrics", headers=headers)
            answer = connection.getresponse()
            return answer.getheader("Content-Type"), answer.read().decode()
        finally:
            connection.close()

    def test_what_passes_read_and_ranks_send_is_counted(self):
        before = byte_counters(self.cluster)
        self.assertEqual(set(before), {"target weights", "target kv", "draft weights", "draft kv", "plan", "draft", "control",
                                       "collective"})
        usage = self.cluster.api.complete(BODY)["usage"]["speculation"]
        self.assertGreater(usage["drafted_nodes"], 0)
        passes = usage["target_passes"] + 1  # the prompt is one chunk
        size = {role: (folder / "model.safetensors").stat().st_size for role, folder in (("target", TARGET), ("draft", DRAFT))}
        token = 5 * 2 * 32 * 4  # K and V of 32 floats in 5 layers
        # A pass reads the file of the target, which is F32, or twice that of the draft, which is BF16; their heads are their embeddings.
        least = {"target weights": 0.9 * usage["target_passes"] * size["target"], "draft weights": size["draft"],
                 "target kv": usage["target_passes"] * token, "draft kv": 0, "plan": 0, "draft": 0, "control": 0, "collective": 0}
        grown = {}

        def told():  # by heartbeats
            after = byte_counters(self.cluster)
            grown.update({name: after[name] - before[name] for name in after})
            return all(grown[name] > least[name] for name in least)

        self.assertTrue(wait_until(told), (grown, least))
        self.assertLess(grown["target weights"], 1.2 * (passes + 1) * size["target"])
        self.assertLess(grown["target kv"], (passes + 1) * 512 * token)  # the whole context in each pass, at most

    def test_vllm_names_are_those_that_the_documentation_marks(self):
        text = self.cluster.api.get("/metrics")[1]
        shown = set(re.findall(r"^# TYPE vllm:(\w+)", text, re.MULTILINE))
        self.assertEqual(shown, marked_names())
        self.assertGreater(len(shown), 20)
        series = {line for line in text.splitlines() if line.startswith("vllm:")}
        own = {line.replace("coppice_", "vllm:", 1) for line in text.splitlines() if line.startswith("coppice_")}
        self.assertEqual(series - own, set())

    def test_the_format_is_the_same_for_every_client(self):
        for accept in ("*/*", "text/plain", OPEN_METRICS, "application/openmetrics-text"):
            kind, text = self.ask(Accept=accept)
            self.assertEqual(kind, "text/plain; version=0.0.4; charset=utf-8")
            self.assertIn("# TYPE coppice_generation_tokens_total counter\n", text)
            self.assertNotIn("# EOF", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
