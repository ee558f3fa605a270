#!/usr/bin/env python3
"""The content of answers: shapes, ranking, usage, determinism, and DSBD with its statistics. The cluster runs under one mpirun
and has two tensor-parallel ranks."""
import json
import unittest

from api_client import outcome
from cluster import Cluster

PROMPT = "Once upon a time, there was a little girl named Lily."
BEAMS = dict(prompt=PROMPT, beam_width=4, n=4, max_tokens=40, return_token_ids=True)


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(tp=2, together=True)
        cls.cluster.__enter__()
        cls.api = cls.cluster.api

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)

    def test_shape(self):
        answer = self.api.complete(dict(prompt=PROMPT, max_tokens=8, seed=7))
        self.assertEqual(answer["object"], "text_completion")
        self.assertTrue(answer["id"].startswith("cmpl-"))
        choice = answer["choices"][0]
        self.assertEqual((choice["index"], choice["seed"]), (0, 7))
        self.assertIn(choice["finish_reason"], ("stop", "length"))
        usage = answer["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        for key in ("queue_ms", "prefill_ms", "first_token_ms", "total_ms"):
            self.assertGreaterEqual(answer["timings"][key], 0, key)

    def test_models(self):
        listed = json.loads(self.api.get("/v1/models")[1])["data"]
        self.assertEqual(len(listed), 1)
        self.assertEqual(listed[0]["max_model_len"], 512)
        self.assertIn("beam_search", listed[0]["capabilities"]["decodings"])
        self.assertEqual(self.api.get("/health")[0], 200)
        self.assertEqual(self.api.get("/metrics")[0], 200)

    def test_choices_are_ranked_and_distinct(self):
        for penalty in (0, 1, 2):
            answer = self.api.complete(dict(BEAMS, decoding="beam_search", length_penalty=penalty))
            choices = answer["choices"]
            self.assertEqual(len(choices), 4)
            self.assertEqual(len({tuple(c["token_ids"]) for c in choices}), 4)
            scores = [c["score"] for c in choices]
            self.assertEqual(scores, sorted(scores, reverse=True))
            for c in choices:
                self.assertAlmostEqual(c["score"], c["joint_logprob"] / len(c["token_ids"]) ** penalty, places=5)

    def test_width_one_beam_search_is_greedy(self):
        beam = self.api.complete(dict(prompt=PROMPT, decoding="beam_search", beam_width=1, n=1, max_tokens=30, return_token_ids=True))
        greedy = self.api.complete(dict(prompt=PROMPT, temperature=0, max_tokens=30, return_token_ids=True))
        self.assertEqual(beam["choices"][0]["token_ids"], greedy["choices"][0]["token_ids"])

    def test_samples_use_consecutive_seeds(self):
        three = self.api.complete(dict(prompt=PROMPT, n=3, seed=7, temperature=1, max_tokens=20, return_token_ids=True))
        for i, choice in enumerate(three["choices"]):
            one = self.api.complete(dict(prompt=PROMPT, seed=7 + i, temperature=1, max_tokens=20, return_token_ids=True))
            self.assertEqual(choice["token_ids"], one["choices"][0]["token_ids"], i)

    def test_usual_spellings_of_other_servers(self):
        wanted = outcome(self.api.complete(dict(BEAMS, decoding="beam_search", beam_width=3, n=3)))
        for fields in (dict(use_beam_search=True, n=3), dict(num_beams=3, n=3), dict(use_beam_search=True, best_of=3, n=3)):
            body = dict(prompt=PROMPT, max_tokens=40, return_token_ids=True, **fields)
            self.assertEqual(outcome(self.api.complete(body)), wanted, fields)

    def test_token_id_prompt_is_the_text_prompt(self):
        text = self.api.complete(dict(BEAMS, decoding="beam_search"))
        ids = self.api.complete(dict(BEAMS, decoding="beam_search", prompt=text["prompt_token_ids"]
                                     if "prompt_token_ids" in text else text["choices"][0]["prompt_token_ids"]))
        self.assertEqual(outcome(ids), outcome(text))

    def test_stop_token_ends_the_hypothesis(self):
        first = self.api.complete(dict(prompt=PROMPT, temperature=0, max_tokens=20, return_token_ids=True))
        stop = first["choices"][0]["token_ids"][4]
        second = self.api.complete(dict(prompt=PROMPT, temperature=0, max_tokens=20, return_token_ids=True, stop_token_ids=[stop]))
        choice = second["choices"][0]
        ids = first["choices"][0]["token_ids"]
        self.assertEqual(choice["token_ids"], ids[:ids.index(stop) + 1])
        self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("stop", stop))

    def test_stop_strings_end_beams(self):
        for decoding in ("beam_search", "beam_sampling", "beam_sampling_without_replacement"):
            body = dict(BEAMS, decoding=decoding, seed=11, stop=["play", "ed t", "zzz"])
            answer = self.api.complete(body)
            stopped = [c for c in answer["choices"] if c["stop_reason"] in body["stop"]]
            self.assertTrue(stopped, decoding)
            for choice in answer["choices"]:
                self.assertFalse(any(stop in choice["text"] for stop in body["stop"]), choice)
            for choice in stopped:
                self.assertEqual(choice["finish_reason"], "stop")
                self.assertAlmostEqual(choice["score"], choice["joint_logprob"] / len(choice["token_ids"]), places=5)
            for speculative in (False, dict(draft_width=4, draft_depth=2), dict(draft_width=16, draft_depth=6)):
                self.assertEqual(outcome(self.api.complete(dict(body, speculative=speculative))), outcome(answer), speculative)
            shown = self.api.complete(dict(body, include_stop_str_in_output=True))
            for cut, whole in zip(answer["choices"], shown["choices"]):
                reason = cut["stop_reason"] if cut["stop_reason"] in body["stop"] else ""
                self.assertEqual(cut["text"] + reason, whole["text"])

    def test_penalties_change_the_answer_and_drafts_do_not(self):
        for decoding in ("multinomial", "beam_search", "beam_sampling", "beam_sampling_without_replacement"):
            body = dict(prompt=PROMPT, decoding=decoding, seed=5, max_tokens=30, return_token_ids=True)
            neutral = dict(body, presence_penalty=0, frequency_penalty=0, repetition_penalty=1)
            plain = outcome(self.api.complete(body))
            self.assertEqual(outcome(self.api.complete(neutral)), plain)
            for penalty in (dict(presence_penalty=1.5), dict(frequency_penalty=1.5), dict(repetition_penalty=1.8)):
                answer = outcome(self.api.complete(dict(body, **penalty)))
                self.assertNotEqual(answer, plain, (decoding, penalty))
                for speculative in (False, dict(draft_width=8, draft_depth=5)):
                    self.assertEqual(outcome(self.api.complete(dict(body, speculative=speculative, **penalty))), answer, (decoding, penalty))

    def test_statistics_add_up(self):
        body = dict(BEAMS, decoding="beam_search", speculative=dict(draft_width=8, draft_depth=4))
        spec = self.api.complete(body)["usage"]["speculation"]
        self.assertEqual(spec["method"], "speculative_beam_search")
        self.assertTrue(spec["lossless"])
        self.assertEqual(sum(spec["accepted_by_layer"]), spec["accepted_nodes"])
        self.assertLessEqual(spec["accepted_nodes"], spec["drafted_nodes"])
        self.assertAlmostEqual(spec["block_efficiency"], spec["layers"] / spec["target_passes"], places=6)
        self.assertGreater(spec["block_efficiency"], 1)

    def test_dsbd_serves_and_reports(self):
        body = dict(BEAMS, decoding="beam_sampling", seed=3)
        answer = self.api.complete(dict(body, speculative=dict(method="dsbd", draft_width=8, draft_depth=3)))
        spec = answer["usage"]["speculation"]
        self.assertEqual((spec["method"], spec["lossless"]), ("dsbd", True))
        self.assertGreater(spec["drafted_nodes"], 0)
        self.assertEqual(sum(spec["accepted_by_layer"]), spec["accepted_nodes"])
        self.assertLessEqual(len(spec["accepted_by_layer"]), 3)
        self.assertTrue(0 < spec["overlap"] <= 1, spec["overlap"])
        self.assertTrue(1 <= len(answer["choices"]) <= 4)
        narrow = self.api.complete(dict(body, speculative=dict(method="dsbd", width_threshold=0.7, min_width=1, allow_lossy=True)))
        self.assertFalse(narrow["usage"]["speculation"]["lossless"])

    def test_gumbel_coupling_is_what_auto_takes_for_sampling(self):
        body = dict(BEAMS, decoding="beam_sampling", seed=5)
        auto, named = self.api.complete(body), self.api.complete(dict(body, speculative=dict(method="gumbel_coupling")))
        self.assertEqual(auto["usage"]["speculation"]["method"], "gumbel_coupling")
        self.assertEqual(outcome(auto), outcome(named))

    def test_metrics_grow_by_what_usage_says(self):
        def total():
            lines = self.api.get("/metrics")[1].splitlines()
            return sum(float(line.split()[-1]) for line in lines if line.startswith("coppice_generation_tokens_total"))

        before = total()
        answer = self.api.complete(dict(BEAMS, decoding="beam_search"))
        self.assertEqual(total() - before, answer["usage"]["completion_tokens"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
