#!/usr/bin/env python3
"""Requests with a catalogue, to a whole cluster: answers are items and nothing else, the best ones by the model's own probabilities, the
same with and without drafts; a catalogue is replaced while requests run."""
import json
import os
import pathlib
import random
import subprocess
import tempfile
import threading
import unittest

from api_client import outcome
from cluster import BIN, TARGET, Cluster

PROMPTS = ["One day, Tom and his mom went to the store.", "The big dog ran to the park and"]
DECODINGS = ("multinomial", "beam_sampling", "beam_sampling_without_replacement", "beam_search")
LENGTH = 3  # tokens of an item
TOKENS = [token for token in range(260, 500) if token != 426]  # "." ends the texts of this model


def make_items(seed, count=400):
    """{id: (name, tokens)}. Few first tokens, so that items share beginnings."""
    draw = random.Random(seed)
    sequences = set()
    while len(sequences) < count:
        sequences.add((draw.randint(260, 275), *(draw.choice(TOKENS) for _ in range(LENGTH - 1))))
    return {f"B{seed}-{i:03}": (f"The book {i} of {seed}", tokens) for i, tokens in enumerate(sorted(sequences, key=lambda t: (t[::-1])))}


def compile_items(items, file):
    """Writes the catalogue to a new file that takes the place of `file`."""
    lines = file.with_suffix(".jsonl")
    lines.write_text("".join(json.dumps({"id": key, "name": name, "tokens": tokens}) + "\n" for key, (name, tokens) in items.items()))
    done = subprocess.run([BIN / "coppice-catalogue", "compile", f"--items={lines}", f"--model={TARGET}", f"--output={file}"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)


class Catalogues(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="coppice-catalogue-")
        cls.file = pathlib.Path(cls.folder.name, "books.cat")
        cls.items = make_items(1)
        compile_items(cls.items, cls.file)
        flag = f"--catalogues=books={cls.file}"
        cls.cluster = Cluster(drafts=1, coordinator_flags=[flag], worker_flags=[flag], draft_flags=[flag])
        cls.cluster.__enter__()
        cls.api = cls.cluster.api

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)
        cls.folder.cleanup()

    def complete(self, **fields):
        body = dict(prompt=PROMPTS[0], catalogue="books", return_token_ids=True)
        return self.api.complete(dict(body, **fields))

    def check_items(self, answer, items, before=()):
        for choice in answer["choices"]:
            name, tokens = items[choice["item"]["id"]]
            self.assertEqual(choice["item"]["name"], name)
            self.assertEqual((*before, *choice["token_ids"]), tokens)
            self.assertEqual(choice["finish_reason"], "stop")

    def refused(self, **fields):
        status, answer = self.api.post(dict(dict(prompt=PROMPTS[0], catalogue="books"), **fields))
        self.assertEqual(status, 400, answer)
        return tuple(answer["error"][field] for field in ("code", "param", "message"))

    def test_answers_are_items_with_every_decoding_and_do_not_depend_on_drafts(self):
        for decoding in DECODINGS:
            bodies = []
            for i, width in enumerate((1,) if decoding == "multinomial" else (2, 8, 32)):
                beams = dict(n=3) if decoding == "multinomial" else dict(beam_width=width, n=width)
                bodies.append(dict(beams, prompt=PROMPTS[i % 2], decoding=decoding, seed=7 + i, catalogue="books", return_token_ids=True))
            plain = self.api.complete_all([dict(body, speculative=False) for body in bodies])
            drafted = self.api.complete_all([dict(body, speculative=dict(draft_depth=2, draft_width=8)) for body in bodies])
            for body, answer in zip(bodies, plain):
                if decoding != "beam_sampling":  # its beams may be equal, and are shown once
                    self.assertEqual(len(answer["choices"]), body["n"], decoding)
                self.check_items(answer, self.items)
            self.assertEqual([outcome(a) for a in drafted], [outcome(a) for a in plain], decoding)

    def test_beam_search_finds_the_best_items_of_all(self):
        chosen = dict(list(self.items.items())[::9])
        answer = self.complete(use_beam_search=True, beam_width=64, n=64, catalogue=dict(name="books", items=list(chosen)))
        self.assertEqual(len(answer["choices"]), len(chosen), "fewer items than beams: all of them")
        self.assertEqual(answer["catalogue"]["items"], len(chosen))
        self.check_items(answer, chosen)
        prompt = self.api.complete(dict(prompt=PROMPTS[0]), "/tokenize")["tokens"]
        scores = {}
        for key, (_, tokens) in chosen.items():
            scored = self.api.complete(dict(prompt=[*prompt, *tokens], max_tokens=0, echo=True, logprobs=0))
            scores[key] = sum(scored["choices"][0]["logprobs"]["token_logprobs"][-LENGTH:])
        expected = sorted(chosen, key=lambda key: -scores[key])
        self.assertEqual([choice["item"]["id"] for choice in answer["choices"]], expected)
        for choice in answer["choices"]:
            self.assertAlmostEqual(choice["joint_logprob"], scores[choice["item"]["id"]], delta=1e-3)

    def test_excluded_items_and_prefixes(self):
        best = self.complete(use_beam_search=True, beam_width=16, n=4)
        gone = best["choices"][0]["item"]["id"]
        less = self.complete(use_beam_search=True, beam_width=16, n=4, catalogue=dict(name="books", exclude=[gone, "B9-unknown"]))
        self.check_items(less, self.items)
        self.assertNotIn(gone, [choice["item"]["id"] for choice in less["choices"]])
        self.assertEqual(less["catalogue"]["items"], len(self.items) - 1)
        prefix = list(self.items[gone][1][:2])
        below = self.complete(use_beam_search=True, beam_width=4, n=4, catalogue=dict(name="books", prefix=prefix))
        self.check_items(below, self.items, before=prefix)
        self.assertEqual(below["usage"]["completion_tokens"], len(below["choices"]) * (LENGTH - 2))

    def test_a_stream_and_a_chat_end_with_the_items(self):
        events = self.api.stream(dict(prompt=PROMPTS[0], catalogue="books", use_beam_search=True, beam_width=4, n=4))
        self.assertEqual(events.pop(), "[DONE]")
        shown = {choice["index"]: choice["item"]["id"] for event in events for choice in event["choices"] if choice["finish_reason"]}
        whole = self.complete(use_beam_search=True, beam_width=4, n=4)
        self.assertEqual(shown, {choice["index"]: choice["item"]["id"] for choice in whole["choices"]})

    def test_what_gives_no_item_is_refused(self):
        self.assertEqual(self.refused(catalogue="films")[:2], ("invalid_value", "catalogue.name"))
        self.assertIn("books", self.refused(catalogue="films")[2])
        self.assertEqual(self.refused(catalogue=7)[:2], ("invalid_type", "catalogue"))
        self.assertEqual(self.refused(catalogue=dict(name="books", items=["B9"]))[:2], ("invalid_value", "catalogue.items"))
        self.assertEqual(self.refused(catalogue=dict(name="books", prefix=[3]))[:2], ("invalid_value", "catalogue.prefix"))
        self.assertEqual(self.refused(max_tokens=2)[:2], ("invalid_value", "max_tokens"))
        self.assertEqual(self.refused(structured_outputs={"regex": "a"})[0], "conflicting_fields")
        one = next(iter(self.items))
        self.assertEqual(self.refused(catalogue=dict(name="books", items=[one], exclude=[one]))[0], "invalid_value")

    def test_a_catalogue_is_replaced_while_requests_run(self):
        other = make_items(2, count=300)
        known, faults, over = {**self.items, **other}, [], threading.Event()

        def ask():
            while not over.is_set():
                try:
                    self.check_items(self.complete(use_beam_search=True, beam_width=8, n=8), known)
                except Exception as error:  # told by the test's own thread
                    faults.append(error)
                    return

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            before = json.loads(self.api.get("/v1/models")[1])["data"][0]["capabilities"]["catalogues"]
            self.assertEqual([(entry["name"], entry["items"]) for entry in before], [("books", 400)])
            broken = self.file.with_name("broken")
            broken.write_bytes(self.file.read_bytes()[:100])
            os.replace(self.file, self.file.with_name("kept"))
            os.replace(broken, self.file)
            status, answer = self.api.post({}, "/admin/reload")
            self.assertEqual(status, 500)
            self.assertIn(str(self.file), answer["error"]["message"])
            self.check_items(self.complete(use_beam_search=True, beam_width=4, n=4), self.items)
            compile_items(other, self.file)
            self.assertEqual(self.api.complete({}, "/admin/reload")["catalogues"][0]["items"], 300)
            self.check_items(self.complete(use_beam_search=True, beam_width=64, n=64), other)
            os.replace(self.file.with_name("kept"), self.file)
            self.assertEqual(self.api.post({}, "/admin/reload")[0], 200)
            self.check_items(self.complete(use_beam_search=True, beam_width=64, n=64), self.items)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        self.assertEqual(faults, [])


if __name__ == "__main__":
    unittest.main()
