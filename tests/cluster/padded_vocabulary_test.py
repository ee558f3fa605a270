#!/usr/bin/env python3
"""A model with more ids than its tokenizer (a padded embedding): an answer can have such an id, and every field that takes ids takes it."""
import pathlib
import tempfile
import unittest

from cluster import Cluster
from model_folders import random_llama

TOKENIZER, MODEL = 512, 544  # ids
PADDED = 530
ALWAYS = {str(PADDED): 100}


class PaddedVocabulary(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        target = random_llama(pathlib.Path(folder.name) / "padded", vocab=MODEL)
        cluster = Cluster(target=target, draft=target, drafts=1)
        cluster.__enter__()
        cls.addClassCleanup(cluster.__exit__, None)
        cls.api = cluster.api

    def choice(self, **fields):
        body = dict(prompt="One day", max_tokens=4, temperature=0, ignore_eos=True, return_token_ids=True)
        return self.api.complete({**body, **fields})["choices"][0]

    def test_an_answer_may_have_one_and_continue_one(self):
        choice = self.choice(logit_bias=ALWAYS, logprobs=1)
        self.assertEqual((choice["token_ids"], choice["text"]), ([PADDED] * 4, ""))
        shown = choice["logprobs"]
        self.assertEqual((shown["tokens"], shown["text_offset"]), ([""] * 4, [0] * 4))
        named = self.choice(logit_bias=ALWAYS, logprobs=1, return_tokens_as_token_ids=True)
        self.assertEqual(named["logprobs"]["tokens"], [f"token_id:{PADDED}"] * 4)
        ids = choice["prompt_token_ids"] + choice["token_ids"]
        scored = self.choice(prompt=ids, echo=True, logprobs=0, max_tokens=0, return_token_ids=False)
        for got, want in zip(scored["logprobs"]["token_logprobs"][-4:], shown["token_logprobs"]):
            self.assertAlmostEqual(got, want, places=4)
        self.assertEqual(scored["text"], self.api.complete(dict(tokens=ids), "/detokenize")["prompt"])

    def test_it_may_end_an_answer_and_be_forbidden(self):
        choice = self.choice(logit_bias=ALWAYS, stop_token_ids=[PADDED])
        self.assertEqual((choice["token_ids"], choice["finish_reason"], choice["stop_reason"]), ([PADDED], "stop", PADDED))
        self.assertNotIn(PADDED, self.choice(logit_bias={str(PADDED): -100})["token_ids"])

    def test_it_has_no_text(self):
        whole = self.api.complete(dict(prompt="One day", return_token_strs=True), "/tokenize")["tokens"]
        text = self.api.complete(dict(tokens=whole), "/detokenize")["prompt"]
        self.assertEqual(text, "One day")
        for special in (True, False):
            spread = [id for token in whole[1:] for id in (PADDED, token, MODEL - 1)]
            self.assertEqual(self.api.complete(dict(tokens=spread, skip_special_tokens=special), "/detokenize")["prompt"], text)

    def test_ids_that_the_model_does_not_have_are_refused(self):
        for path, body, param in (("/v1/completions", dict(prompt=[1, MODEL]), "prompt"),
                                  ("/v1/completions", dict(prompt="a", logit_bias={str(MODEL): 1}), "logit_bias"),
                                  ("/v1/completions", dict(prompt="a", stop_token_ids=[MODEL]), "stop_token_ids"),
                                  ("/detokenize", dict(tokens=[MODEL]), "tokens")):
            with self.subTest(path=path, param=param):
                status, answer = self.api.post(body, path)
                self.assertEqual((status, answer["error"]["code"], answer["error"]["param"]), (400, "invalid_value", param))
                self.assertIn(str(MODEL - 1), answer["error"]["message"])


if __name__ == "__main__":
    unittest.main()
