#!/usr/bin/env python3
"""Requests with formats, to a whole cluster: every method with every decoding gives texts of the format, lossless ones the same texts
with and without drafts, from a draft node that knows the format and from one that does not."""
import json
import os
import pathlib
import re
import shutil
import tempfile
import unittest

from api_client import outcome
from cluster import DRAFT, Cluster
from model_folders import ended_by_eos_alone

PROMPTS = [
    "One day, Tom and his mom went to the store.",
    "The big dog ran to the park and",
]
SCHEMA = {"type": "object", "required": ["title", "year"], "additionalProperties": False,
          "properties": {"title": {"type": "string", "maxLength": 12}, "year": {"type": "integer", "minimum": 1900, "maximum": 2026},
                         "roles": {"type": "array", "items": {"enum": ["actor", "director"]}, "maxItems": 2}}}
SENTENCE = r' (He|She|They) (saw |had )?a (bird|boat|tree)( and said, "[A-Za-z0-9 ]{1,12}!?")?'
CHOICES = ["Lily", "Lily and Tom", "Tom and Mia", "Zürich"]
# Format, and whether a text has it.
FORMATS = [
    (dict(structured_outputs={"json": SCHEMA}), lambda text: fits_schema(json.loads(text))),
    (dict(structured_outputs={"regex": SENTENCE}), lambda text: re.fullmatch(SENTENCE, text)),
    (dict(structured_outputs={"choice": CHOICES}), lambda text: text in CHOICES),
    (dict(structured_outputs={"grammar": 'root ::= "(" root* ")" | [a-c]{1,3}'}), lambda text: fits_nest(text)),
]


def fits_schema(value):
    roles = value.get("roles", [])
    return (list(value) in (["title", "year"], ["title", "year", "roles"]) and isinstance(value["title"], str)
            and len(value["title"]) <= 12 and isinstance(value["year"], int) and 1900 <= value["year"] <= 2026
            and len(roles) <= 2 and set(roles) <= {"actor", "director"})


def fits_nest(text):
    while "(" in text or ")" in text:
        shorter = re.sub(r"\((?:[a-c]|)*\)", "a", text)
        if shorter == text:
            return False
        text = shorter
    return re.fullmatch("[a-c]+", text)


def in_pieces(bodies, size=8):
    return [bodies[i:i + size] for i in range(0, len(bodies), size)]


class Formats(unittest.TestCase):
    drafts_know_the_format = True

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="coppice-formats-"))
        draft = cls.folder / "draft"
        shutil.copytree(DRAFT, draft)
        if not cls.drafts_know_the_format:
            (draft / "tokenizer.model").unlink()
        cls.cluster = Cluster(target=ended_by_eos_alone(pathlib.Path(cls.folder, "target")), drafts=1, draft=draft)
        cls.cluster.__enter__()
        cls.api = cls.cluster.api
        cls.capabilities = json.loads(cls.api.get("/v1/models")[1])["data"][0]["capabilities"]

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)
        shutil.rmtree(cls.folder)

    def bodies(self, row):
        """(body, whether a text has its format)"""
        for decoding in row["decodings"]:
            for i, (fields, fits) in enumerate(FORMATS):
                body = dict(fields, prompt=PROMPTS[i % 2], decoding=decoding, seed=7 + i, max_tokens=64, return_token_ids=True)
                if decoding != "multinomial":
                    body.update(beam_width=3, n=3)
                elif row["greedy_only"]:
                    body.update(temperature=0)
                yield body, fits

    def ask(self, bodies):
        return [answer for piece in in_pieces(bodies) for answer in self.api.complete_all(piece)]

    def test_every_method_keeps_to_the_format(self):
        ended = 0
        for row in self.capabilities["methods"]:
            pairs = list(self.bodies(row))
            shape = {} if row["draft_form"] == "none" else \
                dict(draft_depth=3, draft_width=1 if row["draft_form"] == "path" else row["most_children"] or 4)
            lossy = {} if row["lossless"] else dict(allow_lossy=True)
            drafted = self.ask([dict(body, speculative=dict(method=row["name"], **shape, **lossy)) for body, _ in pairs])
            for (body, fits), answer in zip(pairs, drafted):
                for choice in answer["choices"]:
                    with self.subTest(method=row["name"], decoding=body["decoding"], text=choice["text"]):
                        self.assertIn(choice["finish_reason"], ("stop", "length"))
                        if choice["finish_reason"] == "stop":
                            ended += 1
                            self.assertTrue(fits(choice["text"]))
            if row["reproducible"] and row["lossless"] and row["draft_form"] != "none":
                plain = self.ask([dict(body, speculative=dict(method=row["name"], draft_depth=1, draft_width=1)) for body, _ in pairs])
                self.assertEqual([outcome(a) for a in drafted], [outcome(a) for a in plain], row["name"])
        self.assertGreater(ended, 120)

    def test_plain_and_drafted_texts_are_the_same(self):
        for decoding in ("multinomial", "beam_sampling", "beam_sampling_without_replacement", "beam_search"):
            beams = {} if decoding == "multinomial" else dict(beam_width=3, n=3)
            bodies = [dict(fields, **beams, prompt=PROMPTS[i % 2], decoding=decoding, seed=seed, max_tokens=40, return_token_ids=True)
                      for i, (fields, _) in enumerate(FORMATS) for seed in range(1 if decoding == "beam_search" else 6)]
            plain = self.ask([dict(body, speculative=False) for body in bodies])
            drafted = self.ask([dict(body, speculative=dict(draft_depth=4, draft_width=6)) for body in bodies])
            self.assertEqual([outcome(a) for a in drafted], [outcome(a) for a in plain], decoding)
            passes = [sum(a["usage"]["speculation"][key] for a in drafted) for key in ("layers", "target_passes")]
            if self.drafts_know_the_format:
                self.assertGreater(passes[0], 1.2 * passes[1], decoding)

    def test_a_stream_ends_with_the_format(self):
        body = dict(FORMATS[0][0], prompt=PROMPTS[1], use_beam_search=True, beam_width=4, max_tokens=120)
        events = self.api.stream(body)
        self.assertEqual(events.pop(), "[DONE]")
        choices = [choice for event in events for choice in event["choices"]]
        text = "".join(choice["text"] for choice in choices)
        self.assertEqual(choices[-1]["finish_reason"], "stop", text)
        self.assertTrue(fits_schema(json.loads(text)), text)

    def test_a_banned_format_fails_its_request_alone(self):
        count = json.loads(self.api.get("/v1/models")[1])["data"][0]["max_model_len"]
        self.assertGreater(count, 0)
        ids = self.api.complete(dict(prompt=PROMPTS[0], max_tokens=1, temperature=0, return_token_ids=True,
                                     structured_outputs={"choice": ["7"]}))["choices"][0]["token_ids"]
        answer = self.api.complete(dict(prompt=PROMPTS[0], max_tokens=4, temperature=0, logit_bias={str(ids[0]): -100},
                                        structured_outputs={"choice": ["7"]}))
        self.assertEqual(answer["choices"][0]["text"], "7")  # -100 nats are no ban

    def test_what_cannot_be_read_is_refused(self):
        for fields, code in [(dict(structured_outputs={"regex": "(a"}), "invalid_value"),
                             (dict(structured_outputs={"json": {"type": "objekt"}}), "invalid_value"),
                             (dict(structured_outputs={"choice": []}), "missing_field"),
                             (dict(structured_outputs={"choice": [""]}), "invalid_value"),
                             (dict(guided_regex="a", guided_grammar='root ::= "a"'), "conflicting_fields"),
                             (dict(guided_regex="a", min_tokens=2), "unsupported_combination"),
                             (dict(guided_regex="a", ignore_eos=True), "unsupported_combination")]:
            status, answer = self.api.post(dict(fields, prompt=PROMPTS[0]))
            self.assertEqual((status, answer["error"]["code"]), (400, code), answer)
        self.assertEqual(self.api.complete(dict(prompt=PROMPTS[0], guided_regex="ab?"))["choices"][0]["text"][0], "a")


class FormatsWithoutATokenizerForDrafts(Formats):
    drafts_know_the_format = False


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    unittest.main()
