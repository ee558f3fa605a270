#!/usr/bin/env python3
"""In a whole cluster, groups of beams, a width for each layer, no_repeat_ngram_size and min_score give the same token ids and scores
with and without drafts, alone and together, and what docs/api.md says of them.

  beam_options_test.py TP      number of ranks of the replica
"""
import sys
import unittest

from api_client import outcome
from cluster import DRAFT, Cluster

PROMPTS = ["Once upon a time, there was a big bear who did not like the rain.", "There was a mouse who lived behind the oven."]
OPTIONS = {
    "groups": dict(num_beams=6, num_return_sequences=6, num_beam_groups=3, diversity_penalty=0.6),
    "groups to the end": dict(num_beams=4, n=4, num_beam_groups=2, diversity_penalty=1.5, early_stopping=False),
    "a width for each layer": dict(beam_width=[8, 4, 2], n=2),
    "widths without replacement": dict(decoding="beam_sampling_without_replacement", beam_width=[6, 3], n=3, seed=5),
    "no bigram twice": dict(num_beams=4, n=4, no_repeat_ngram_size=2),
    "no bigram twice, sampled": dict(no_repeat_ngram_size=2, seed=6),
    "no bigram twice, sampled beams": dict(decoding="beam_sampling", beam_width=3, n=3, seed=7, no_repeat_ngram_size=2),
    "likely ones": dict(num_beams=4, n=4, early_stopping=False, min_score=-0.9),
    "all together": dict(num_beams=[8, 4], n=4, num_beam_groups=2, diversity_penalty=0.5, no_repeat_ngram_size=3, min_score=-3),
}
DRAFTED = dict(speculative=dict(draft_width=8, draft_depth=4))
TP = 1


def requests():
    return [(f"{option}, prompt {i}", dict(fields, prompt=prompt, max_tokens=32, return_token_ids=True))
            for option, fields in OPTIONS.items() for i, prompt in enumerate(PROMPTS)]


class BeamOptions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(tp=TP, draft=DRAFT).__enter__()
        cls.api = cls.cluster.api

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def test_drafts_change_nothing(self):
        plain = {}
        for name, body in requests():
            plain[name] = outcome(self.api.complete(dict(body, speculative=False)))
        accepted = 0
        for name, body in requests():
            with self.subTest("alone", request=name):
                answer = self.api.complete(dict(body, **DRAFTED))
                self.assertEqual(outcome(answer), plain[name])
                self.assertGreater(answer["usage"]["speculation"]["drafted_nodes"], 0)
                accepted += answer["usage"]["speculation"]["accepted_nodes"]
        self.assertGreater(accepted, 0)
        together = self.api.complete_all([dict(body, **DRAFTED) for _, body in requests()])
        for (name, _), answer in zip(requests(), together):
            with self.subTest("together", request=name):
                self.assertEqual(outcome(answer), plain[name])

    def complete(self, **fields):
        return self.api.complete(dict(fields, prompt=PROMPTS[0], max_tokens=24, return_token_ids=True))

    def test_groups_differ(self):
        """A large penalty keeps the first tokens of the groups apart; without one, most beams begin alike."""
        def first_tokens(answer):
            return {choice["token_ids"][0] for choice in answer["choices"]}

        alike = first_tokens(self.complete(num_beams=4, n=4))
        apart = first_tokens(self.complete(num_beams=4, n=4, num_beam_groups=4, diversity_penalty=50))
        self.assertEqual(len(apart), 4)
        self.assertLess(len(alike), 4)

    def test_no_ngram_comes_twice(self):
        for size in (1, 2, 3):
            for choice in self.complete(num_beams=3, n=3, no_repeat_ngram_size=size, ignore_eos=True)["choices"]:
                ids = choice["prompt_token_ids"] + choice["token_ids"]
                new = range(len(choice["prompt_token_ids"]), len(ids))
                seen = {tuple(ids[i:i + size]) for i in range(len(choice["prompt_token_ids"]) - size + 1)}
                for i in new:
                    ngram = tuple(ids[i - size + 1:i + 1])
                    self.assertNotIn(ngram, seen, size)
                    seen.add(ngram)

    def test_min_score_leaves_out_the_others(self):
        for early_stopping in (True, False):
            every = self.complete(num_beams=6, n=6, early_stopping=early_stopping)["choices"]
            least = every[2]["score"]
            some = self.complete(num_beams=6, n=6, early_stopping=early_stopping, min_score=least)["choices"]
            shown = [(choice["token_ids"], choice["score"]) for choice in some]
            self.assertEqual(shown, [(choice["token_ids"], choice["score"]) for choice in every if choice["score"] >= least])
            self.assertGreaterEqual(len(shown), 3)
            self.assertLess(len(shown), 6)

    def test_without_a_choice(self):
        answer = self.complete(num_beams=4, n=4, min_score=-1e-9)
        self.assertEqual(answer["choices"], [])
        self.assertEqual(answer["beam_mass"], 0)
        self.assertGreater(answer["usage"]["prompt_tokens"], 0)
        self.assertEqual(answer["usage"]["completion_tokens"], 0)
        events = self.api.stream(dict(prompt=PROMPTS[0], num_beams=4, n=4, min_score=-1e-9, max_tokens=8))
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual([choice for event in events[:-1] for choice in event["choices"]], [])


if __name__ == "__main__":
    if len(sys.argv) < 2 or not sys.argv[1].isdigit():
        sys.exit(__doc__)
    TP = int(sys.argv.pop(1))
    unittest.main(verbosity=2)
