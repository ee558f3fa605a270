#!/usr/bin/env python3
"""Drafts without a draft model in a whole cluster: the tokens without drafts, where they are seen, the operator's corpus."""
import pathlib
import re
import tempfile
import unittest

from api_client import outcome
from cluster import Cluster, StartFailure
from stopwatch import wait_until

SENTENCE = "One day, a little girl named Lily found a big red ball in the park."
PROMPT = f"{SENTENCE} {SENTENCE} One day, a little girl"
SHAPE = dict(draft_width=4, draft_depth=4)
KINDS = {"greedy": dict(temperature=0), "sampled": dict(temperature=0.3, seed=3),
         "beam_search": dict(decoding="beam_search", beam_width=3, n=3),
         "beam_sampling": dict(decoding="beam_sampling", beam_width=3, n=3, temperature=0.3, seed=4),
         "penalised": dict(temperature=0, repetition_penalty=1.05),
         "stopped": dict(temperature=0, stop=["ball"]),
         "scored": dict(temperature=0, logprobs=2),
         "format": dict(temperature=0, structured_outputs=dict(regex="[a-z ]{1,40}"))}


def body_of(fields, **more):
    return dict(dict(prompt=PROMPT, max_tokens=48, return_token_ids=True, ignore_eos=False), **fields, **more)


def series(cluster, name):
    """{source: value} of a counter of drafts from texts."""
    found = re.findall(rf'coppice_suffix_{name}_total{{[^}}]*source="(\w+)"}} (\S+)', cluster.api.get("/metrics")[1])
    return {source: float(value) for source, value in found}


class SuffixDrafts(unittest.TestCase):
    def check(self, cluster):
        drafted = accepted = 0
        for name, fields in KINDS.items():
            with self.subTest(name):
                plain = cluster.api.complete(body_of(fields, speculative=False))
                self.assertEqual(plain["usage"]["speculation"]["suffix_rounds"], 0)
                for speculative in ("auto", SHAPE):
                    answer = cluster.api.complete(body_of(fields, speculative=speculative))
                    self.assertEqual(outcome(answer), outcome(plain))
                    spec = answer["usage"]["speculation"]
                    self.assertEqual(spec["suffix_rounds"], spec["rounds"] - spec["plain_rounds"])
                    drafted, accepted = drafted + spec["drafted_nodes"], accepted + spec["accepted_nodes"]
        self.assertGreater(drafted, 50)
        self.assertGreater(accepted, 10)

    def test_answers_are_those_without_drafts(self):
        with Cluster(drafts=0) as cluster:
            self.check(cluster)
            self.assertTrue(wait_until(lambda: sum(series(cluster, "accepted_tokens").values()) > 10))
            drafted, accepted = series(cluster, "draft_tokens"), series(cluster, "accepted_tokens")
            self.assertTrue(all(drafted[source] >= accepted[source] for source in ("prompt", "answer", "corpus")), (drafted, accepted))
            self.assertTrue(cluster.api.cluster()["replicas"][0]["suffix_drafts"]["used"])
            answer = cluster.api.complete(body_of(KINDS["greedy"], speculative=SHAPE, trace=True))
            sources = [one.get("draft_source") for one in answer["trace"]]
            self.assertEqual(sources.count("suffix"), answer["usage"]["speculation"]["suffix_rounds"])
            self.assertEqual(set(sources), {"suffix", None})

    def test_two_ranks(self):
        with Cluster(drafts=0, tp=2) as cluster:
            self.check(cluster)

    def test_a_corpus_knows_the_answer(self):
        body = dict(prompt="Once upon a time", max_tokens=40, temperature=0, return_token_ids=True, ignore_eos=True)
        with tempfile.TemporaryDirectory() as folder:
            text, ids = pathlib.Path(folder, "stories.txt"), pathlib.Path(folder, "stories.ids")
            with Cluster(drafts=0, worker_flags=("--suffix_drafts=false",)) as cluster:
                answer = cluster.api.complete(dict(body, speculative=SHAPE))
                self.assertEqual(answer["usage"]["speculation"]["drafted_nodes"], 0)
                self.assertNotIn("suffix_drafts", cluster.api.cluster()["replicas"][0])
                choice = answer["choices"][0]
                text.write_text(body["prompt"] + choice["text"])
                ids.write_text(" ".join(map(str, choice["token_ids"])) + "\n")
            for file in (text, ids):
                with self.subTest(file.name), Cluster(drafts=0, worker_flags=(f"--suffix_corpus={file}",)) as cluster:
                    known = cluster.api.complete(dict(body, speculative=SHAPE))
                    self.assertEqual(outcome(known), outcome(answer))
                    self.assertLess(known["usage"]["speculation"]["target_passes"], 15)
                    self.assertTrue(wait_until(lambda: series(cluster, "accepted_tokens").get("corpus", 0) > 10))
                    self.assertGreater(cluster.api.cluster()["replicas"][0]["suffix_drafts"]["corpus_tokens"], 20)

    def test_a_bad_corpus_is_told_at_the_start(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "bad.ids")
            for text, flags, error in (("1 2\n3 512\n", (), 'bad.ids: line 2: "512" is no token id'),
                                       ("", (), "bad.ids: cannot be read, or is empty"),
                                       ("1 2 3\n", ("--suffix_corpus_bytes=16",), "--suffix_corpus_bytes is 16")):
                file.write_text(text)
                with self.subTest(error), self.assertRaises(StartFailure) as failure:
                    with Cluster(drafts=0, worker_flags=(f"--suffix_corpus={file}", *flags)):
                        pass
                self.assertIn(error, str(failure.exception))


if __name__ == "__main__":
    unittest.main()
