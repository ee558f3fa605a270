#!/usr/bin/env python3
"""Bad requests to a whole cluster. Each gets a 4xx with an OpenAI-style error that names the field, and the cluster goes on
serving. There is one row for each rule of the API."""
import json
import re
import tempfile
import unittest

from api_client import outcome
from cluster import Cluster
from stopwatch import wait_until
from model_folders import with_nan

PROMPT = "One day, Tom and his mom went to the store."
BEAM_SEARCH = dict(decoding="beam_search", beam_width=4)

# (fields besides the prompt, expected param, expected code)
FIELDS = [
    # out of range
    (dict(temperature=-0.1), "temperature", "invalid_value"),
    (dict(temperature=2.1), "temperature", "invalid_value"),
    (dict(top_p=0), "top_p", "invalid_value"),
    (dict(top_p=1.1), "top_p", "invalid_value"),
    (dict(min_p=-0.1), "min_p", "invalid_value"),
    (dict(top_k=-2), "top_k", "invalid_value"),
    (dict(top_k=2049), "top_k", "invalid_value"),
    (dict(n=0), "n", "invalid_value"),
    (dict(n=513), "n", "invalid_value"),
    (dict(n=2, best_of=1), "best_of", "invalid_value"),
    (dict(max_tokens=-2), "max_tokens", "invalid_value"),
    (dict(max_tokens=0), "max_tokens", "unsupported_combination"),
    (dict(max_tokens=0, echo=True, stream=True), "max_tokens", "unsupported_combination"),
    (dict(max_tokens=0, echo=True, min_tokens=1), "min_tokens", "invalid_value"),
    (dict(logprobs=21), "logprobs", "invalid_value"),
    (dict(logprobs=-1), "logprobs", "invalid_value"),
    (dict(max_tokens=10, min_tokens=11), "min_tokens", "invalid_value"),
    (dict(decoding="beam_search", beam_width=0), "beam_width", "invalid_value"),
    (dict(decoding="beam_search", beam_width=513), "beam_width", "invalid_value"),
    (dict(BEAM_SEARCH, length_penalty=11), "length_penalty", "invalid_value"),
    (dict(seed=2**63), "seed", "invalid_value"),
    (dict(timeout=0), "timeout", "invalid_value"),
    (dict(timeout=3601), "timeout", "invalid_value"),
    (dict(stop=["x"] * 17), "stop", "invalid_value"),
    (dict(stop_token_ids=[512]), "stop_token_ids", "invalid_value"),
    (dict(logit_bias={"5": 101}), "logit_bias", "invalid_value"),
    (dict(logit_bias={"x": 1}), "logit_bias", "invalid_value"),
    (dict(logit_bias={"512": 1}), "logit_bias", "invalid_value"),
    (dict(decoding="beams"), "decoding", "invalid_value"),
    (dict(sampling_scope="column"), "sampling_scope", "invalid_value"),
    (dict(early_stopping="always", decoding="beam_search"), "early_stopping", "invalid_value"),
    (dict(speculative=dict(draft_width=513)), "speculative.draft_width", "invalid_value"),
    (dict(speculative=dict(draft_depth=0)), "speculative.draft_depth", "invalid_value"),
    (dict(speculative=dict(draft_top_k=1025)), "speculative.draft_top_k", "invalid_value"),
    (dict(speculative=dict(method="magic")), "speculative.method", "invalid_value"),
    (dict(speculative=dict(draft_tree="2-x")), "speculative.draft_tree", "invalid_value"),
    (dict(speculative=dict(draft_tree="64-2")), "speculative.draft_tree", "invalid_value"),
    (dict(speculative=dict(draft_beams=513)), "speculative.draft_beams", "invalid_value"),
    (dict(speculative=dict(mjsd_threshold=1.5)), "speculative.mjsd_threshold", "invalid_value"),
    (dict(speculative=dict(fallback_threshold=-1)), "speculative.fallback_threshold", "invalid_value"),
    (dict(speculative=dict(rollback_threshold=-1)), "speculative.rollback_threshold", "invalid_value"),
    (dict(speculative=dict(joint_tokens=17)), "speculative.joint_tokens", "invalid_value"),
    (dict(decoding="beam_sampling", beam_duplicates="never"), "beam_duplicates", "invalid_value"),
    (dict(speculative="maybe"), "speculative", "invalid_value"),
    # wrong type
    (dict(temperature="1"), "temperature", "invalid_type"),
    (dict(n=1.5), "n", "invalid_value"),
    (dict(n=True), "n", "invalid_type"),
    (dict(max_tokens="4"), "max_tokens", "invalid_type"),
    (dict(stream="yes"), "stream", "invalid_type"),
    (dict(logprobs=True), "logprobs", "invalid_type"),
    (dict(echo="yes"), "echo", "invalid_type"),
    (dict(logit_bias=[1]), "logit_bias", "invalid_type"),
    (dict(speculative=3), "speculative", "invalid_type"),
    (dict(speculative=dict(draft_tree=[4, 2])), "speculative.draft_tree", "invalid_type"),
    (dict(speculative=dict(rollback_threshold="2")), "speculative.rollback_threshold", "invalid_type"),
    (dict(beam_duplicates=True), "beam_duplicates", "invalid_type"),
    (dict(model=7), "model", "invalid_type"),
    # unknown, not served, contradictory
    (dict(foo=1), "foo", "unknown_field"),
    (dict(speculative=dict(foo=1)), "speculative.foo", "unknown_field"),
    (dict(suffix="x"), "suffix", "unsupported_field"),
    (dict(tools=[1]), "tools", "unsupported_field"),
    (dict(top_logprobs=3), "top_logprobs", "unsupported_field"),
    (dict(decoding="beam_search", beam_width=4, num_beams=5), "beam_width", "conflicting_fields"),
    (dict(max_tokens=4, max_new_tokens=5), "max_tokens", "conflicting_fields"),
    # combinations
    (dict(BEAM_SEARCH, temperature=0.7), "temperature", "unsupported_combination"),
    (dict(BEAM_SEARCH, top_k=5), "top_k", "unsupported_combination"),
    (dict(BEAM_SEARCH, n=5), "n", "unsupported_combination"),
    (dict(presence_penalty=2.5), "presence_penalty", "invalid_value"),
    (dict(frequency_penalty=-2.5), "frequency_penalty", "invalid_value"),
    (dict(repetition_penalty=0), "repetition_penalty", "invalid_value"),
    (dict(decoding="beam_sampling", sampling_scope="joint", presence_penalty=1), "presence_penalty", "unsupported_combination"),
    (dict(decoding="beam_sampling", beam_width=4, temperature=0), "temperature", "unsupported_combination"),
    (dict(decoding="multinomial", beam_width=2), "beam_width", "unsupported_combination"),
    (dict(decoding="multinomial", use_beam_search=True), "use_beam_search", "unsupported_combination"),
    (dict(length_penalty=2), "length_penalty", "unsupported_combination"),
    (dict(early_stopping=False), "early_stopping", "unsupported_combination"),
    (dict(n=1, best_of=2, stream=True), "best_of", "unsupported_combination"),
    (dict(stream_options=dict(include_usage=True)), "stream_options", "unsupported_combination"),
    (dict(BEAM_SEARCH, speculative=dict(method="gumbel_coupling")), "speculative.method", "unsupported_combination"),
    (dict(decoding="multinomial", speculative=dict(method="speculative_beam_search")), "speculative.method", "unsupported_combination"),
    (dict(decoding="beam_sampling", beam_width=4, speculative=dict(method="dsbd", width_threshold=0.7)),
     "speculative.width_threshold", "unsupported_combination"),
    (dict(decoding="beam_sampling", beam_width=4, speculative=dict(method="gumbel_coupling", width_threshold=0.7, allow_lossy=True)),
     "speculative.width_threshold", "unsupported_combination"),
    (dict(speculative=dict(draft_tree="4-2")), "speculative.draft_tree", "unsupported_combination"),
    (dict(speculative=dict(draft_beams=3)), "speculative.draft_beams", "unsupported_combination"),
    (dict(speculative=dict(mjsd_threshold=0.5)), "speculative.mjsd_threshold", "unsupported_combination"),
    (dict(speculative=dict(fallback_threshold=0.4)), "speculative.fallback_threshold", "unsupported_combination"),
    (dict(speculative=dict(rollback_threshold=3)), "speculative.rollback_threshold", "unsupported_combination"),
    (dict(speculative=dict(joint_tokens=2)), "speculative.joint_tokens", "unsupported_combination"),
    (dict(BEAM_SEARCH, beam_duplicates="once"), "beam_duplicates", "unsupported_combination"),
    (dict(BEAM_SEARCH, sampling_scope="joint"), "sampling_scope", "unsupported_combination"),
    (dict(structured_outputs=dict(json={"$ref": "#"})), "structured_outputs.json", "invalid_value"),
]

PROMPTS = [
    (None, "missing_field"),
    ([], "invalid_value"),
    ([[]], "invalid_value"),
    (["a", 1], "invalid_type"),
    (7, "invalid_type"),
    ([512], "invalid_value"),
    ([-1], "invalid_value"),
    ([1.5], "invalid_value"),
    (["a"] * 65, "invalid_value"),
    ([5] * 512, "context_length_exceeded"),
    ("Once upon a time " * 200, "context_length_exceeded"),
]

MALFORMED = [b"", b'{"prompt": ', b"[]", b"NaN", b'{"prompt": "a", "temperature": NaN}', b'{"prompt": "\xff"}',
             b'{"prompt": "\\ud800"}', b'{"prompt": ' + b"[" * 40 + b"]" * 40 + b"}"]


class BadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(tp=1, coordinator_flags=("--unknown_fields=refuse",))
        cls.cluster.__enter__()
        cls.api = cls.cluster.api

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)

    def refused(self, result, param, code, status=400):
        got, answer = result
        self.assertEqual(got, status, answer)
        error = answer["error"]
        self.assertEqual((error["param"], error["code"]), (param, code), error)
        self.assertTrue(error["message"] and error["type"], error)

    def test_fields(self):
        for fields, param, code in FIELDS:
            with self.subTest(fields):
                self.refused(self.api.post(dict(dict(prompt=PROMPT), **fields)), param, code)
        self.assertEqual(self.api.post(dict(prompt=PROMPT, max_tokens=2))[0], 200)

    def test_prompts(self):
        for prompt, code in PROMPTS:
            with self.subTest(str(prompt)[:20]):
                self.refused(self.api.post(dict(prompt=prompt)), "prompt", code)

    def test_prompt_and_max_tokens_beyond_the_context(self):
        status, answer = self.api.post(dict(prompt=PROMPT, max_tokens=500))
        self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))
        self.assertIn(answer["error"]["param"], ("max_tokens", "prompt"))
        self.assertEqual(self.api.post(dict(prompt=PROMPT))[0], 200)

    def test_messages_do_not_quote_the_prompt(self):
        for body in (dict(prompt=["marker-7391", 1]), dict(prompt="marker-7391 " * 300), dict(prompt="x", stop=["marker-7391" * 40])):
            status, answer = self.api.post(body)
            self.assertEqual(status, 400)
            self.assertNotIn("marker-7391", json.dumps(answer))

    def test_malformed_json(self):
        for data in MALFORMED:
            with self.subTest(data[:24]):
                status, answer = self.api.post_raw(data)
                self.assertEqual((status, answer["error"]["code"]), (400, "invalid_json"))

    def test_unknown_model(self):
        self.refused(self.api.post(dict(prompt=PROMPT, model="other")), "model", "model_not_found", status=404)

    def test_routes_methods_and_types(self):
        self.assertEqual(self.api.get("/v1/nothing")[0], 404)
        self.assertEqual(self.api.get("/v1/completions")[0], 405)
        headers = {"Content-Type": "text/plain"}
        self.assertEqual(self.api.post_raw(b'{"prompt": "a"}', headers=headers)[0], 415)

    def test_neutral_values_are_accepted(self):
        neutral = dict(presence_penalty=0, frequency_penalty=0, repetition_penalty=1.0, tools=[], logprobs=None, echo=False,
                       top_k=-1, top_p=1, user="u", num_beam_groups=1, n=1.0, temperature=None)
        self.assertEqual(self.api.post(dict(neutral, prompt=PROMPT, max_tokens=2))[0], 200)


class KvCapacity(unittest.TestCase):
    def test_request_that_can_never_fit_is_refused(self):
        # A block of 16 tokens, 5 layers, K and V of 32 floats each.
        block = 16 * 5 * 2 * 32 * 4
        with Cluster(tp=1, drafts=0, worker_flags=(f"--kv_bytes={block * 12}",)) as cluster:
            total = cluster.api.cluster()["replicas"][0]["kv"]["blocks_total"]
            status, answer = cluster.api.post(dict(prompt=PROMPT, max_tokens=200))
            self.assertEqual((status, answer["error"]["code"]), (400, "kv_capacity_exceeded"), answer)
            self.assertIn(str(total), answer["error"]["message"])
            small = [dict(prompt=PROMPT, max_tokens=16, seed=i) for i in range(12)]
            self.assertEqual(len(cluster.api.complete_all(small)), 12)


class BrokenModels(unittest.TestCase):
    """Models with NaN logits. If the target's are NaN, the request fails with an error that says so. If the draft's are NaN,
    the rounds are plain."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def test_target(self):
        with Cluster(target=with_nan(f"{self.folder.name}/target"), drafts=0) as cluster:
            for body in (dict(prompt=PROMPT), dict(BEAM_SEARCH, prompt=PROMPT)) * 2:
                status, answer = cluster.api.post(dict(body, max_tokens=4))
                self.assertEqual((status, answer["error"]["code"]), (500, "internal_error"), answer)
                self.assertRegex(answer["error"]["message"], "target logits of row 0 .*token 7 is .*nan")
            self.assertEqual(cluster.api.cluster()["replicas"][0]["kv"]["blocks_used"], 0)

    def test_draft(self):
        with Cluster(draft=with_nan(f"{self.folder.name}/draft"), drafts=1) as cluster:
            body = dict(prompt=PROMPT, max_tokens=12, temperature=0, return_token_ids=True)
            answer = cluster.api.complete(dict(body, speculative=dict(draft_width=2, draft_depth=2)))
            self.assertEqual(outcome(answer), outcome(cluster.api.complete(dict(body, speculative=False))))
            self.assertEqual(answer["usage"]["speculation"]["drafted_nodes"], 0)
            self.assertTrue(wait_until(lambda: "draft logits after node -1: token 7 is" in cluster.process("replica-0").output()))
            counted = re.compile(r'rounds_without_draft_total{reason="refused"[^}]*} [1-9]')  # comes with the heartbeats
            self.assertTrue(wait_until(lambda: counted.search(cluster.api.get("/metrics")[1])))


if __name__ == "__main__":
    unittest.main(verbosity=2)
