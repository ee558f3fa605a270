#!/usr/bin/env python3
"""`logprobs`, `echo` and `beam_mass` of a whole cluster: for every method and decoding, with drafts and without, streamed, on one
rank and on two. The log-probabilities of an answer must be those that scoring its tokens as a prompt gives."""
import json
import math
import unittest

from cluster import Cluster

PROMPTS = [
    "One day, Tom and his mom went to the store.",
    "The big dog ran to the park and",
]
LONG = "Once upon a time, there was a little girl named Lily. She had a red ball. " * 3
SAMPLINGS = [{}, dict(temperature=0.6, logit_bias={"300": 4, "17": -3}), dict(top_k=20, top_p=0.9), dict(min_p=0.05, min_tokens=6)]
NEAR = 1e-5


def choice_scores(choice):
    return choice["logprobs"]["token_logprobs"]


class Logprobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(tp=2, drafts=1)
        cls.cluster.__enter__()
        cls.api = cls.cluster.api
        cls.rows = json.loads(cls.api.get("/v1/models")[1])["data"][0]["capabilities"]["methods"]

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)

    def assert_near(self, got, want, what=None):
        self.assertEqual(len(got), len(want), what)
        for i, (a, b) in enumerate(zip(got, want)):
            self.assertLess(abs(a - b), NEAR, (i, what))

    def score(self, ids, top=0, api=None):
        """The log-probabilities of the tokens from the second on, and their alternatives."""
        answer = (api or self.api).complete(dict(prompt=ids, max_tokens=0, echo=True, logprobs=top))
        shown = answer["choices"][0]["logprobs"]
        self.assertEqual(len(shown["tokens"]), len(ids))
        self.assertEqual((shown["token_logprobs"][0], shown["top_logprobs"][0]), (None, None))
        return shown["token_logprobs"][1:], shown["top_logprobs"][1:]

    def bodies(self, row):
        for decoding in row["decodings"]:
            for i, sampling in enumerate(SAMPLINGS):
                body = dict(prompt=PROMPTS[i % 2], seed=40 + i, max_tokens=12, decoding=decoding, logprobs=4, return_token_ids=True,
                            speculative=dict(method=row["name"], **({} if row["lossless"] else dict(allow_lossy=True))))
                if decoding != "multinomial":
                    body.update(beam_width=3, n=3)
                elif row["greedy_only"]:
                    body.update(temperature=0)
                if decoding == "beam_search" or row["greedy_only"]:
                    sampling = {k: v for k, v in sampling.items() if k in ("logit_bias", "min_tokens")}
                yield dict(body, **sampling)

    def test_every_method_and_decoding_reports_what_scoring_gives(self):
        for row in self.rows:
            with self.subTest(row["name"]):
                bodies = list(self.bodies(row))
                for body, answer in zip(bodies, self.api.complete_all(bodies)):
                    for choice in answer["choices"]:
                        shown, ids = choice["logprobs"], choice["prompt_token_ids"] + choice["token_ids"]
                        self.assertEqual({len(shown[name]) for name in shown}, {len(choice["token_ids"])})
                        scored, top = self.score(ids, top=4)
                        begin = len(choice["prompt_token_ids"]) - 1
                        self.assert_near(choice_scores(choice), scored[begin:], body)
                        for one, other, chosen in zip(shown["top_logprobs"], top[begin:], choice_scores(choice)):
                            self.assertGreaterEqual(len(one), 4)
                            self.assert_near(sorted(one.values()), sorted(other.values()))
                            self.assertGreaterEqual(max(one.values()), chosen)

    def test_the_same_with_drafts_and_without(self):
        for row in self.rows:
            if not row["reproducible"] or row["draft_form"] == "none":
                continue
            bodies = list(self.bodies(row))
            with self.subTest(row["name"]):
                drafted = [dict(body, speculative=dict(body["speculative"], draft_depth=3)) for body in bodies]
                smallest = [dict(body, speculative=dict(body["speculative"], draft_width=1, draft_depth=1)) for body in bodies]
                for body, one, other in zip(bodies, self.api.complete_all(drafted), self.api.complete_all(smallest)):
                    self.assertEqual([c["token_ids"] for c in one["choices"]], [c["token_ids"] for c in other["choices"]], body)
                    for a, b in zip(one["choices"], other["choices"]):
                        self.assert_near(choice_scores(a), choice_scores(b), body)
        for decoding in ("multinomial", "beam_search", "beam_sampling", "beam_sampling_without_replacement"):
            body = dict(prompt=PROMPTS[0], seed=5, max_tokens=20, decoding=decoding, logprobs=2, return_token_ids=True)
            with self.subTest(decoding):
                plain = self.api.complete(dict(body, speculative=False))
                drafted = self.api.complete(dict(body, speculative=dict(draft_width=6, draft_depth=4)))
                self.assertGreater(drafted["usage"]["speculation"]["accepted_nodes"], 0)
                for a, b in zip(plain["choices"], drafted["choices"], strict=True):
                    self.assertEqual(a["token_ids"], b["token_ids"])
                    self.assert_near(choice_scores(a), choice_scores(b))

    def test_beam_scores_add_up(self):
        answer = self.api.complete(dict(prompt=PROMPTS[0], use_beam_search=True, n=4, max_tokens=40, logprobs=0))
        for choice in answer["choices"]:
            self.assertAlmostEqual(choice["joint_logprob"], sum(choice_scores(choice)), places=5)
        ended = [math.exp(c["joint_logprob"]) for c in answer["choices"] if c["finish_reason"] == "stop"]
        self.assertTrue(ended)
        self.assertAlmostEqual(answer["beam_mass"], sum(ended), places=12)
        self.assertLessEqual(answer["beam_mass"], 1)
        self.assertNotIn("beam_mass", self.api.complete(dict(prompt=PROMPTS[0], max_tokens=2)))

    def test_beam_mass_is_how_often_sampling_gives_one_of_the_answers(self):
        stops = dict(prompt='She said, "Thank you, mom', max_tokens=12, return_token_ids=True)
        answer = self.api.complete(dict(stops, use_beam_search=True, n=8, early_stopping="never"))
        sets = {tuple(c["token_ids"]) for c in answer["choices"] if c["finish_reason"] == "stop"}
        self.assertGreater(answer["beam_mass"], 0.05)
        draws = hits = 0
        for answers in self.api.complete_all([dict(stops, n=64, seed=1000 * i) for i in range(12)]):
            draws += len(answers["choices"])
            hits += sum(tuple(c["token_ids"]) in sets for c in answers["choices"])
        mass = answer["beam_mass"]
        self.assertLess(abs(hits - draws * mass), 5 * math.sqrt(draws * mass * (1 - mass)) + 1, (hits, draws, mass))

    def test_streams_concatenate_to_the_plain_answer(self):
        for fields in (dict(n=2), dict(use_beam_search=True, n=3), dict(echo=True), dict(stop="came"),
                       dict(decoding="beam_sampling", n=2, echo=True)):
            body = dict(prompt=PROMPTS[1], seed=3, max_tokens=24, logprobs=2, **fields)
            with self.subTest(fields):
                plain = self.api.complete(body)
                joined, texts, mass = {}, {}, None
                for event in self.api.stream(body):
                    if event == "[DONE]":
                        continue
                    mass = event.get("beam_mass", mass)
                    for choice in event["choices"]:
                        whole = joined.setdefault(choice["index"], {})
                        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
                        for name, values in choice["logprobs"].items():
                            whole.setdefault(name, []).extend(values)
                self.assertEqual(texts, {c["index"]: c["text"] for c in plain["choices"]})
                self.assertEqual(joined, {c["index"]: c["logprobs"] for c in plain["choices"]})
                self.assertEqual(mass, plain.get("beam_mass"))

    def test_a_long_prompt_is_scored_alike_whatever_the_chunks_and_the_cache(self):
        ids = self.api.complete(dict(prompt=LONG, max_tokens=4, return_token_ids=True))["choices"][0]["prompt_token_ids"]
        self.assertGreater(len(ids), 64)
        usage = self.api.complete(dict(prompt=ids, max_tokens=1))["usage"]
        self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], 0)
        scored = self.api.complete(dict(prompt=ids, max_tokens=0, echo=True, logprobs=0))
        self.assertEqual(scored["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        want = scored["choices"][0]["logprobs"]["token_logprobs"][1:]
        self.assert_near(self.score(ids)[0], want)
        many = self.api.complete_all([dict(prompt=[ids, ids[:50]], max_tokens=0, echo=True, logprobs=0)] * 3)
        for answer in many:
            self.assert_near(choice_scores(answer["choices"][0])[1:], want)
            self.assert_near(choice_scores(answer["choices"][1])[1:], want[:49])
        with Cluster(drafts=0, worker_flags=("--prefill_chunk=13",)) as cluster:
            self.assert_near(self.score(ids, api=cluster.api)[0], want)

    def test_echo(self):
        plain = self.api.complete(dict(prompt=PROMPTS[0], max_tokens=5, seed=1))["choices"][0]["text"]
        echoed = self.api.complete(dict(prompt=PROMPTS[0], max_tokens=5, seed=1, echo=True, n=2))["choices"]
        self.assertEqual(echoed[0]["text"], PROMPTS[0] + plain)
        self.assertTrue(echoed[1]["text"].startswith(PROMPTS[0]))
        both = self.api.complete(dict(prompt=PROMPTS[0], max_tokens=5, seed=1, echo=True, logprobs=1, return_token_ids=True))
        choice = both["choices"][0]
        self.assertEqual(choice["text"], PROMPTS[0] + plain)
        shown = choice["logprobs"]
        self.assertEqual(len(shown["tokens"]), len(choice["prompt_token_ids"]) + len(choice["token_ids"]))
        for token, offset in list(zip(shown["tokens"], shown["text_offset"]))[2:-1]:
            self.assertEqual(choice["text"][offset:offset + len(token)], token)
        self.assert_near(shown["token_logprobs"][1:], self.score(choice["prompt_token_ids"] + choice["token_ids"])[0])

    def test_the_ends_of_prompts(self):
        one = self.api.complete(dict(prompt=[5], max_tokens=0, echo=True, logprobs=3))
        self.assertEqual(one["choices"][0]["logprobs"]["token_logprobs"], [None])
        self.assertEqual(one["usage"]["completion_tokens"], 0)
        context = json.loads(self.api.get("/v1/models")[1])["data"][0]["max_model_len"]
        self.assertEqual(len(self.score([7] * context)[0]), context - 1)
        only = self.api.complete(dict(prompt=PROMPTS[0], max_tokens=0, echo=True))["choices"][0]
        self.assertEqual((only["text"], only["finish_reason"], only["logprobs"]), (PROMPTS[0], "length", None))


if __name__ == "__main__":
    unittest.main(verbosity=2)
