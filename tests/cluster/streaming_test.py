#!/usr/bin/env python3
"""Streams. The deltas of every index join to the answer without streaming. Nothing is taken back. Usage is sent if requested."""
import unittest

from cluster import Cluster

PROMPT = "Once upon a time, there was a little girl named Lily."
DISTRIBUTIONS = {
    "one sample": dict(decoding="multinomial", seed=4, n=1),
    "three samples": dict(decoding="multinomial", seed=4, n=3),
    "hot samples": dict(decoding="multinomial", seed=9, n=2, temperature=2.0),
    "beam sampling": dict(decoding="beam_sampling", beam_width=4, n=1, seed=4),
    "beam sampling, best 3": dict(decoding="beam_sampling", beam_width=4, n=3, seed=5),
    "beam search": dict(decoding="beam_search", beam_width=4, n=1),
    "beam search, best 3": dict(decoding="beam_search", beam_width=4, n=3),
    "beam search to the end": dict(decoding="beam_search", beam_width=4, n=2, early_stopping="never"),
}


def concatenated(events):
    """{index: (text, ids, finish_reason, score)} of the choices of a stream."""
    found = {}
    for event in events:
        for choice in event["choices"]:
            text, ids, _, _ = found.get(choice["index"], ("", [], None, None))
            found[choice["index"]] = (text + choice["text"], ids + (choice.get("token_ids") or []),
                                      choice.get("finish_reason"), choice.get("score"))
    return found


class Streaming(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(tp=1)
        cls.cluster.__enter__()
        cls.api = cls.cluster.api

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)

    def test_deltas_concatenate_to_the_plain_answer(self):
        for name, fields in DISTRIBUTIONS.items():
            for speculative in (True, False):
                body = dict(fields, prompt=PROMPT, max_tokens=40, return_token_ids=True, speculative=speculative)
                with self.subTest(name, speculative=speculative):
                    plain = self.api.complete(body)
                    events = self.api.stream(body)
                    self.assertEqual(events[-1], "[DONE]")
                    self.assertEqual(events.count("[DONE]"), 1)
                    wanted = {c["index"]: (c["text"], c["token_ids"], c["finish_reason"], c.get("score"))
                              for c in plain["choices"]}
                    self.assertEqual(concatenated(events[:-1]), wanted)

    def test_beams_stream_before_they_end(self):
        body = dict(DISTRIBUTIONS["beam search"], prompt=PROMPT, max_tokens=40, early_stopping="never")
        events = self.api.stream(body)[:-1]
        self.assertGreater(len(events), 1, "the whole text came in one event")
        self.assertTrue(all(c["index"] == 0 for e in events[:-1] for c in e["choices"]))

    def test_last_event_of_beams_holds_all_choices(self):
        events = self.api.stream(dict(DISTRIBUTIONS["beam search, best 3"], prompt=PROMPT, max_tokens=40))[:-1]
        last = [e for e in events if e["choices"]][-1]
        self.assertEqual(sorted(c["index"] for c in last["choices"]), [0, 1, 2])
        for choice in last["choices"]:
            self.assertIn(choice["finish_reason"], ("stop", "length"))
            self.assertIsNotNone(choice["score"])

    def test_no_event_before_the_first_text(self):
        events = self.api.stream(dict(prompt=PROMPT, seed=1, max_tokens=10, return_token_ids=True))
        self.assertTrue(any(c["token_ids"] or c["text"] for c in events[0]["choices"]))

    def test_usage_when_asked_for(self):
        body = dict(prompt=PROMPT, seed=1, max_tokens=20)
        without = self.api.stream(body)[:-1]
        self.assertTrue(all(not event.get("usage") and event["choices"] for event in without))
        events = self.api.stream(dict(body, stream_options=dict(include_usage=True)))[:-1]
        self.assertTrue(all(event["usage"] is None for event in events[:-1]))
        self.assertEqual(events[-1]["choices"], [])
        plain = self.api.complete(body)["usage"]
        for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertEqual(events[-1]["usage"][key], plain[key], key)
        self.assertIn("total_ms", events[-1]["timings"])

    def test_usage_of_every_event(self):
        """The counts so far, which end at those of the whole answer."""
        options = dict(include_usage=True, continuous_usage_stats=True)
        for distribution in (dict(n=2), dict(use_beam_search=True, beam_width=4, n=2)):
            body = dict(distribution, prompt=PROMPT, seed=1, max_tokens=20)
            *events, last = self.api.stream(dict(body, stream_options=options))[:-1]
            counts = [event["usage"]["completion_tokens"] for event in events]
            self.assertEqual(counts, sorted(counts))
            self.assertGreater(counts[0], 0)
            plain = self.api.complete(body)["usage"]
            self.assertEqual((counts[-1], last["usage"]["completion_tokens"]), (plain["completion_tokens"],) * 2)
            for event in events:
                usage = event["usage"]
                self.assertEqual(usage["prompt_tokens"], plain["prompt_tokens"])
                self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])

    def test_headers(self):
        connection, response = self.api.open_stream(dict(prompt=PROMPT, max_tokens=4))
        try:
            self.assertEqual(response.status, 200)
            self.assertEqual(response.getheader("Content-Type"), "text/event-stream; charset=utf-8")
            self.assertEqual(response.getheader("Cache-Control"), "no-cache")
            response.read()
        finally:
            connection.close()

    def test_refusal_has_its_status_and_no_stream(self):
        status, answer = self.api.post(dict(prompt=PROMPT, stream=True, temperature=5))
        self.assertEqual((status, answer["error"]["param"]), (400, "temperature"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
