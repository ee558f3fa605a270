#!/usr/bin/env python3
"""Metrics of a whole cluster: bytes that nodes count, tokens that are counted as they come, vLLM's names, one format."""
import json
import re
import unittest

from api_client import read_events
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
        cls.cluster = Cluster(tp=2)
        cls.cluster.__enter__()
        cls.fresh = cls.cluster.api.get("/metrics")[1]

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

    def test_a_fresh_server_has_few_series(self):
        names = [line.split(" ")[0] for line in self.fresh.splitlines() if not line.startswith("#")]
        self.assertLess(len(names), 700)
        self.assertFalse([name for name in names if "position=" in name or "spec_decode" in name])
        for name in ("cpu_seconds_total", "resident_memory_bytes", "virtual_memory_bytes", "open_fds", "max_fds", "start_time_seconds"):
            self.assertIn(f"process_{name}", names)

    def test_the_format_is_the_same_for_every_client(self):
        for accept in ("*/*", "text/plain", OPEN_METRICS, "application/openmetrics-text"):
            kind, text = self.ask(Accept=accept)
            self.assertEqual(kind, "text/plain; version=0.0.4; charset=utf-8")
            self.assertIn("# TYPE coppice_generation_tokens_total counter\n", text)
            self.assertNotIn("# EOF", text)


class Tokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(coordinator_flags=("--metrics_vllm_names",))
        cls.cluster.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)

    def tokens(self):
        """(tokens of prompts, generated tokens), as counted so far."""
        text = self.cluster.api.get("/metrics")[1]
        return tuple(int(float(re.search(rf"^coppice_{kind}_tokens_total{{.*}} (\S+)$", text, re.MULTILINE)[1]))
                     for kind in ("prompt", "generation"))

    def aborted(self):
        text = self.cluster.api.get("/metrics")[1]
        return float(re.search(r'^coppice_request_success_total{finished_reason="abort".*} (\S+)$', text, re.MULTILINE)[1])

    def test_tokens_are_counted_while_a_stream_runs_and_after_its_client_has_gone(self):
        prompt = self.cluster.api.post(dict(prompt=PROMPT), "/tokenize")[1]["count"]
        # Of so many sequences that the answer takes much longer than the client needs for events of two rounds.
        for body in (dict(n=16, temperature=1.0), dict(decoding="beam_sampling", beam_width=16, temperature=0.3)):
            with self.subTest(body):
                before, aborts, seen = self.tokens(), self.aborted(), []
                connection, response = self.cluster.api.open_stream(dict(body, prompt=PROMPT, max_tokens=400, ignore_eos=True, seed=1))
                for _ in read_events(response):
                    seen.append(self.tokens())
                    if len(seen) >= 6 and seen[-1][1] > seen[0][1]:
                        break
                self.assertEqual({prompts for prompts, _ in seen}, {before[0] + prompt})
                self.assertGreater(seen[0][1], before[1])
                self.assertGreater(seen[-1][1], seen[0][1])
                self.assertLess(seen[-1][1], before[1] + 16 * 400)  # it still runs
                connection.close()
                self.assertTrue(wait_until(lambda: self.aborted() == aborts + 1))
                self.assertGreaterEqual(self.tokens()[1], seen[-1][1])
                self.assertEqual(self.tokens()[0], before[0] + prompt)

    def test_tokens_of_an_answer_that_is_not_streamed_are_counted_while_it_is_made(self):
        before, aborts = self.tokens(), self.aborted()
        connection = self.cluster.api.connect()
        connection.request("POST", "/v1/completions", json.dumps(dict(prompt=PROMPT, max_tokens=400, ignore_eos=True, n=8)),
                           {"Content-Type": "application/json"})
        self.assertTrue(wait_until(lambda: self.tokens()[1] > before[1] + 8, poll_s=0.001))
        connection.close()
        self.assertTrue(wait_until(lambda: self.aborted() == aborts + 1))
        self.assertGreater(self.tokens()[1], before[1] + 8)

    def test_counted_tokens_are_those_of_usage(self):
        for body in (BODY, dict(BODY, n=3), dict(prompt=[PROMPT, "Once"], n=2, max_tokens=40)):
            with self.subTest(body):
                before = self.tokens()
                usage = self.cluster.api.complete(body)["usage"]
                after = self.tokens()
                self.assertEqual((after[0] - before[0], after[1] - before[1]), (usage["prompt_tokens"], usage["completion_tokens"]))

    def test_vllm_names_are_those_that_the_documentation_marks(self):
        self.cluster.api.complete(BODY)  # the series of a method begin when it is first used
        text = self.cluster.api.get("/metrics")[1]
        shown = set(re.findall(r"^# TYPE vllm:(\w+)", text, re.MULTILINE))
        self.assertEqual(shown, marked_names())
        self.assertGreater(len(shown), 20)
        series = {line for line in text.splitlines() if line.startswith("vllm:")}
        own = {line.replace("coppice_", "vllm:", 1) for line in text.splitlines() if line.startswith("coppice_")}
        self.assertEqual(series - own, set())


if __name__ == "__main__":
    unittest.main(verbosity=2)
