#!/usr/bin/env python3
"""Beams of 50 to 512, to a whole cluster: every method gives the same hypotheses, all of them, with drafts and without, alone and
beside other wide requests, with a format that allows few tokens too; and what does not fit into a step is refused with the reason."""
import unittest

from api_client import outcome
from cluster import DRAFT, Cluster
from stopwatch import wait_until

PROMPTS = [
    "Once upon a time, there was a big bear who did not like the rain.",
    "There was a mouse who lived behind the oven.",
]
METHODS = [dict(decoding="beam_search", early_stopping="never"), dict(decoding="beam_sampling_without_replacement", seed=5),
           dict(decoding="beam_sampling", seed=6)]
FEW = dict(structured_outputs={"regex": "[a-f]{2}[0-9]{2}"})
WIDTHS = (50, 128, 512)


def requests():
    """[(name, body)]"""
    found = []
    for i, method in enumerate(METHODS):
        for width in WIDTHS:
            for name, fields in (("all tokens", {}), ("few", FEW)):
                body = dict(method, **fields, prompt=PROMPTS[(i + width) % 2], beam_width=width, n=width, max_tokens=5, return_token_ids=True)
                found.append((f"{method['decoding']}, {width} beams, {name}", body))
    return found


def drafted(body):
    return dict(body, speculative=dict(draft_width=body["beam_width"], draft_depth=2))


class WideBeams(unittest.TestCase):
    def test_drafts_and_company_change_nothing(self):
        plain, accepted = {}, 0
        with Cluster(draft=DRAFT, worker_flags=("--max_rows=2048",), draft_flags=("--max_rows=2048",)) as cluster:
            for name, body in requests():
                answer = cluster.api.complete(dict(body, speculative=False))
                plain[name] = outcome(answer)
                if body["decoding"] != "beam_sampling":  # in which slots may hold one path, which is returned once
                    self.assertEqual(len(answer["choices"]), body["n"], name)
                paths = {tuple(choice["token_ids"]) for choice in answer["choices"]}
                self.assertEqual(len(paths), len(answer["choices"]), name)
                answer = cluster.api.complete(drafted(body))
                self.assertEqual(outcome(answer), plain[name], name)
                self.assertGreater(answer["usage"]["speculation"]["drafted_nodes"], 0, name)
                accepted += answer["usage"]["speculation"]["accepted_nodes"]
            self.assertGreater(accepted, 1000)
            for i in range(0, len(plain), 3):
                together = requests()[i:i + 3]
                answers = cluster.api.complete_all([drafted(body) if j % 2 else body for j, (_, body) in enumerate(together)])
                for (name, _), answer in zip(together, answers):
                    self.assertEqual(outcome(answer), plain[name], f"in company: {name}")

    def test_more_beams_than_limits_and_rows(self):
        with Cluster(drafts=0, coordinator_flags=("--max_beam_width=1024", "--max_n=1024"), worker_flags=("--max_rows=600",)) as cluster:
            body = dict(decoding="beam_search", prompt=PROMPTS[0], max_tokens=3, ignore_eos=True, return_token_ids=True)
            self.assertEqual(len(cluster.api.complete(dict(body, beam_width=600, n=600))["choices"]), 600)
            log = cluster.process("coordinator")
            self.assertTrue(wait_until(lambda: "finish=length*600" in log.output(), 5), log.output()[-2000:])
            status, answer = cluster.api.post(dict(body, beam_width=601, n=1))
            self.assertEqual(status, 400, answer)
            self.assertIn("601 beams do not fit in a forward pass of 600 rows", answer["error"]["message"])
            status, answer = cluster.api.post(dict(body, beam_width=1025))
            self.assertEqual((status, answer["error"]["param"]), (400, "beam_width"))


if __name__ == "__main__":
    unittest.main()
