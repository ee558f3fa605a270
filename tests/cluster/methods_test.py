#!/usr/bin/env python3
"""Requests every method that GET /v1/models lists, by name, from a whole cluster: with each decoding that it serves, with many
shapes, sampling parameters and stop conditions, alone and concurrently, streamed, and with the draft node killed on the way."""
import itertools
import json
import os
import signal
import threading
import unittest

from api_client import outcome
from cluster import Cluster

PROMPTS = [
    "One day, Tom and his mom went to the store.",
    "The big dog ran to the park and",
]
EOS = 2
TOGETHER = 8
BEAMS = dict(beam_width=3)
# Fields for any method that takes sampling parameters. Beam search takes none.
SAMPLINGS = [dict(temperature=0.7), dict(top_k=20, top_p=0.9), dict(min_p=0.05, temperature=1.3)]
ENDS = [dict(max_tokens=3), dict(max_tokens=1), dict(stop_token_ids=[EOS], ignore_eos=True), dict(min_tokens=6, max_tokens=9)]
OPTIONS = {}  # fields that only some methods read, with values that are not the default, from GET /v1/models


def other_value(parameter):
    """A value in the range of a listed parameter that is not its default."""
    low, high = parameter["minimum"], parameter["maximum"]
    if parameter["type"] == "integer":
        return parameter["default"] - 1 if parameter["default"] > low else low + 1
    return low + 0.4 * (min(high, low + 2) - low)


def shapes(row):
    """The draft shapes, besides auto, that the method's form and options allow."""
    if row["draft_form"] == "none":
        return
    yield dict(draft_width=1, draft_depth=3)
    children = row["most_children"] or 5
    if row["draft_form"] != "path":
        yield dict(draft_width=children, draft_depth=2)
    if "draft_tree" in row["options"]:
        yield dict(draft_tree="chain")
        yield dict(draft_tree=f"{min(3, children)}-2-1")


def requests(row, decoding):
    """Request bodies without prompt and seed, as (fields, fields of `speculative`)."""
    processed = decoding != "beam_search" and not row["greedy_only"]
    yield {}, {}
    for shape in shapes(row):
        yield {}, shape
    for name, value in OPTIONS.items():
        if name in row["options"]:
            yield {}, {name: value, "allow_lossy": True}
    if "beam_duplicates" in row["options"] and decoding == "beam_sampling":
        yield dict(beam_duplicates="once"), {}
    for sampling in SAMPLINGS if processed else ():
        yield sampling, {}
    for mode in row["sampling_scopes"] if processed else ():
        yield dict(sampling_scope=mode, top_k=30), {}
    for end in ENDS:
        yield end, {}
    yield dict(n=2), {}


def speculation(answer):
    return answer["usage"]["speculation"]


class Methods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(tp=2, drafts=1, coordinator_flags=("--unknown_fields=refuse",))
        cls.cluster.__enter__()
        cls.api = cls.cluster.api
        capabilities = json.loads(cls.api.get("/v1/models")[1])["data"][0]["capabilities"]
        cls.rows = capabilities["methods"]
        # A parameter without a maximum in the list: min_width, which is only allowed with width_threshold.
        OPTIONS.update((p["name"], other_value(p)) for p in capabilities["parameters"]
                       if p["read_by"] == "option" and p.get("maximum") is not None)
        cls.known = {}

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)

    @staticmethod
    def body(row, decoding, fields=(), speculative=(), index=0):
        base = dict(prompt=PROMPTS[index % len(PROMPTS)], seed=100 + index, max_tokens=16, decoding=decoding, return_token_ids=True)
        if decoding != "multinomial":
            base.update(BEAMS)
        elif row["greedy_only"]:
            base.update(temperature=0)
        lossy = {} if row["lossless"] else dict(allow_lossy=True)
        return dict(base, **dict(fields), speculative=dict(method=row["name"], **dict(lossy, **dict(speculative))))

    def all_bodies(self, row):
        pairs = [(decoding, *request) for decoding in row["decodings"] for request in requests(row, decoding)]
        return [self.body(row, *pair, index=i) for i, pair in enumerate(pairs)]

    def ask(self, bodies):
        """The answers, in order. Sends TOGETHER requests at a time."""
        answers = []
        for begin in range(0, len(bodies), TOGETHER):
            answers += self.api.complete_all(bodies[begin:begin + TOGETHER])
        return answers

    def is_plain(self, row, body):
        """True if this is the method that decodes without drafts: the first in the list that serves the decoding and the sampling parameters."""
        mode, once = body.get("sampling_scope", "row"), body.get("beam_duplicates") == "once"
        return row is next(r for r in self.rows if body["decoding"] in r["decodings"] and mode in r["sampling_scopes"]
                           and ("beam_duplicates" in r["options"] or not once))

    def references(self, row, bodies):
        """Outcomes without drafts. If the method is not the plain one, outcomes with the smallest draft."""
        smallest = dict(method=row["name"], draft_width=1, draft_depth=1)
        bodies = [dict(body, speculative=False if self.is_plain(row, body) else smallest) for body in bodies]
        keys = [json.dumps(body, sort_keys=True) for body in bodies]
        missing = {key: body for key, body in zip(keys, bodies) if key not in self.known}
        self.known.update(zip(missing, map(outcome, self.ask(list(missing.values())))))
        return [self.known[key] for key in keys]

    def test_1_every_method_by_name(self):
        for row in self.rows:
            with self.subTest(row["name"]):
                bodies = self.all_bodies(row)
                answers = self.ask(bodies)
                for body, answer in zip(bodies, answers):
                    spec = speculation(answer)
                    lossless = row["lossless"] and "width_threshold" not in body["speculative"]
                    self.assertEqual((spec["method"], spec["lossless"]), (row["name"], lossless), body)
                    for choice in answer["choices"]:
                        self.assertIn(choice["finish_reason"], ("stop", "length"))
                        self.assertLessEqual(len(choice["token_ids"]), body["max_tokens"])
                        self.assertGreater(len(choice["token_ids"]), body.get("min_tokens", 0) - 1)
                    self.assertLessEqual(sum(spec["accepted_by_layer"]), spec["drafted_nodes"], body)
                    self.assertEqual(sum(spec["accepted_by_layer"]), spec["accepted_nodes"], body)
                # Only fixed shapes: with an automatic one, nothing may be drafted on a machine where drafts do not pay.
                shaped = [a for b, a in zip(bodies, answers) if {"draft_width", "draft_tree"} & b["speculative"].keys()]
                layers, passes = (sum(speculation(a)[key] for a in shaped) for key in ("layers", "target_passes"))
                if row["draft_form"] == "none":
                    self.assertEqual(sum(speculation(a)["drafted_nodes"] for a in answers), 0)
                else:
                    self.assertGreater(layers, 1.05 * passes)
                if row["reproducible"]:
                    self.assertEqual([outcome(a) for a in answers], self.references(row, bodies))

    def test_2_streamed(self):
        for row in self.rows:
            for decoding in row["decodings"]:
                with self.subTest((row["name"], decoding)):
                    body = self.body(row, decoding)
                    events = self.api.stream(dict(body, stream_options=dict(include_usage=True)))
                    self.assertEqual(events.pop(), "[DONE]")
                    usage = events.pop()["usage"]
                    self.assertEqual(usage["speculation"]["method"], row["name"])
                    choices = [choice for event in events for choice in event["choices"] if choice["index"] == 0]
                    ids = [token for choice in choices for token in choice["token_ids"]]
                    self.assertLessEqual(len(ids), body["max_tokens"])
                    self.assertEqual(usage["completion_tokens"], len(ids))
                    self.assertIn(choices[-1]["finish_reason"], ("stop", "length"))
                    if row["reproducible"]:
                        self.assertEqual(ids, self.references(row, [body])[0][0][1])

    def test_3_what_a_method_cannot_do_is_refused(self):
        decodings = {decoding for row in self.rows for decoding in row["decodings"]}
        for row in self.rows:
            refused = [self.body(row, decoding) for decoding in decodings - set(row["decodings"])]
            served = row["decodings"][0]
            refused += [self.body(row, served, dict(sampling_scope=mode)) for mode in {"joint", "rowcut"} - set(row["sampling_scopes"])
                        if served != "beam_search"]
            if not row["lossless"]:
                refused.append(self.body(dict(row, lossless=True), served))
            if row["draft_form"] == "path":
                refused.append(self.body(row, served, {}, dict(draft_width=2)))
            if row["most_children"]:
                refused.append(self.body(row, served, {}, dict(draft_width=row["most_children"] + 1)))
                refused.append(self.body(row, served, {}, dict(draft_tree=f"1-{row['most_children'] + 1}")))
            if row["draft_form"] == "none":
                refused.append(self.body(row, served, {}, dict(draft_depth=2)))
            refused += [self.body(row, served, {}, {name: value}) for name, value in dict(OPTIONS, draft_tree="2-2").items()
                        if name not in row["options"]]
            for body in refused:
                with self.subTest(body):
                    status, answer = self.api.post(body)
                    self.assertEqual((status, answer["error"]["code"]), (400, "unsupported_combination"), answer)
                    if answer["error"]["param"] != "sampling_scope":  # which no method serves with this decoding
                        self.assertIn(row["name"], answer["error"]["message"])

    def test_4_the_draft_node_dies_half_way(self):
        pairs = [(row, decoding) for row in self.rows for decoding in row["decodings"]]
        bodies = [self.body(*pair, dict(max_tokens=60, ignore_eos=True), index=i) for i, pair in enumerate(pairs)]
        expected = [self.references(row, [body])[0] if row["reproducible"] else None for (row, _), body in zip(pairs, bodies)]
        draft = self.cluster.process("draft-0").process
        results = [None] * len(bodies)
        turn = itertools.count()

        def work():
            while (i := next(turn)) < len(bodies):
                if i == len(bodies) // 2:
                    os.kill(draft.pid, signal.SIGKILL)
                results[i] = self.api.post(bodies[i])

        threads = [threading.Thread(target=work) for _ in range(TOGETHER)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(draft.wait(), -signal.SIGKILL)
        for (row, decoding), (status, answer), before in zip(pairs, results, expected):
            with self.subTest((row["name"], decoding)):
                self.assertEqual(status, 200, answer)
                if before is not None:
                    self.assertEqual(outcome(answer), before)


if __name__ == "__main__":
    unittest.main(verbosity=2)
