#!/usr/bin/env python3
"""Calls of tools by a whole cluster: with every decoding they are of the tools' schemas, the same with drafts and without, streamed
or not; beams of calls have scores. The model knows nothing of tools: what it calls is bound by the format."""
import json
import tempfile
import unittest

from cluster import Cluster
from model_folders import ended_by_eos_alone

CHAT = "/v1/chat/completions"
MESSAGES = [dict(role="user", content="Tom and his mom went to the store.")]
TEMPLATE = """{{- bos_token }}
{%- for tool in tools or [] %}{{ tool.function.name }}, {% endfor %}{% if tools %}by <tool_call>
{% endif %}
{%- for message in messages %}
    {{- message.role + ': ' + message.content }}
    {%- for call in message.tool_calls %} calls {{ call.function.name }} of {{ call.function.arguments.kind }}{% endfor %}
{% endfor %}
{%- if add_generation_prompt %}assistant: {% endif %}
"""
KINDS = ["dog", "cat", "bird"]
TOOLS = [
    dict(type="function", function=dict(name="find_pet", description="Finds a pet.", strict=True, parameters=dict(
        type="object", required=["kind", "age"], additionalProperties=False,
        properties=dict(kind={"enum": KINDS}, age=dict(type="integer", minimum=1, maximum=20), names=dict(
            type="array", maxItems=2, items={"$ref": "#/$defs/name"}))) | {"$defs": dict(name=dict(type="string", maxLength=6))})),
    dict(type="function", function=dict(name="go_home")),
]
DECODINGS = {
    "greedy": dict(temperature=0),
    "one sample": dict(decoding="multinomial"),
    "two samples": dict(decoding="multinomial", n=2),
    "beam sampling": dict(decoding="beam_sampling", beam_width=4, n=2),
    "without replacement": dict(decoding="beam_sampling_without_replacement", beam_width=4, n=4),
    "beam search": dict(use_beam_search=True, beam_width=4, n=4),
}
CHOICES = {
    "required": dict(tool_choice="required", parallel_tool_calls=False),
    "named": dict(tool_choice=dict(type="function", function=dict(name="find_pet"))),
    "auto": dict(tool_choice="auto"),
}


def calls_of(message):
    return [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []]


class Tools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        target = ended_by_eos_alone(f"{cls.folder.name}/target")
        (target / "chat_template.jinja").write_text(TEMPLATE)
        cls.cluster = Cluster(target=target)
        cls.cluster.__enter__()
        cls.api = cls.cluster.api

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)
        cls.folder.cleanup()

    def chat(self, **fields):
        return self.api.complete(dict(dict(messages=MESSAGES, tools=TOOLS, max_tokens=150, seed=3), **fields), CHAT)

    def check_call(self, name, text):
        arguments = json.loads(text)
        if name == "go_home":
            return self.assertEqual(arguments, {})
        self.assertEqual(name, "find_pet")
        self.assertLessEqual({"kind", "age"}, set(arguments))
        self.assertLessEqual(set(arguments), {"kind", "age", "names"})
        self.assertIn(arguments["kind"], KINDS)
        self.assertTrue(1 <= arguments["age"] <= 20)
        names = arguments.get("names", [])
        self.assertTrue(len(names) <= 2 and all(len(one) <= 6 for one in names), names)

    def test_calls_are_of_their_schemas_and_the_same_without_drafts(self):
        finished = 0
        for choice, fields in CHOICES.items():
            for decoding, more in DECODINGS.items():
                with self.subTest(choice=choice, decoding=decoding):
                    choices = self.chat(**fields, **more)["choices"]
                    plain = self.chat(**fields, **more, speculative=False)["choices"]
                    self.assertEqual([(c["message"]["content"], calls_of(c["message"]), c["finish_reason"], c["score"]) for c in choices],
                                     [(c["message"]["content"], calls_of(c["message"]), c["finish_reason"], c["score"]) for c in plain])
                    for one in choices:
                        calls = calls_of(one["message"])
                        if choice != "auto":
                            self.assertTrue(calls)
                            # An answer that is cut off may end with the beginning of another call.
                            if one["finish_reason"] != "length":
                                self.assertIsNone(one["message"]["content"])
                        self.assertEqual(one["finish_reason"] == "tool_calls", bool(calls) and one["finish_reason"] != "length")
                        for i, (name, text) in enumerate(calls):
                            if i + 1 < len(calls) or one["finish_reason"] != "length":
                                self.check_call(name, text)
                                finished += 1
        self.assertGreater(finished, 20)

    def test_beams_are_calls_with_scores(self):
        # A text may be written by several sequences of tokens, which this model finds about as likely.
        choices = self.chat(tool_choice="required", parallel_tool_calls=False, use_beam_search=True, beam_width=8, n=4,
                            return_token_ids=True)["choices"]
        self.assertEqual(len({tuple(choice["token_ids"]) for choice in choices}), 4)
        self.assertTrue(all(len(calls_of(choice["message"])) == 1 for choice in choices))
        scores = [choice["score"] for choice in choices]
        self.assertEqual(scores, sorted(scores, reverse=True))

    def test_streams_come_together(self):
        for choice, fields in CHOICES.items():
            for decoding in ("greedy", "two samples", "beam search"):
                body = dict(fields, **DECODINGS[decoding])
                with self.subTest(choice=choice, decoding=decoding):
                    whole = {c["index"]: (c["message"]["content"] or "", calls_of(c["message"])) for c in self.chat(**body)["choices"]}
                    parts = {}
                    for event in self.api.stream(dict(dict(messages=MESSAGES, tools=TOOLS, max_tokens=150, seed=3), **body), path=CHAT)[:-1]:
                        for delta in event["choices"]:
                            text, calls = parts.setdefault(delta["index"], ("", []))
                            for call in delta["delta"].get("tool_calls", []):
                                if call["index"] == len(calls):
                                    calls.append((call["function"]["name"], ""))
                                name, arguments = calls[call["index"]]
                                calls[call["index"]] = (name, arguments + call["function"]["arguments"])
                            parts[delta["index"]] = (text + (delta["delta"].get("content") or ""), calls)
                    self.assertEqual(parts, whole)

    def test_a_conversation_goes_on_with_results(self):
        call = dict(id="call_1", type="function", function=dict(name="find_pet", arguments='{"kind": "dog", "age": 2}'))
        messages = MESSAGES + [dict(role="assistant", content=None, tool_calls=[call]), dict(role="tool", tool_call_id="call_1", content="Rex")]
        status, answer = self.api.post(dict(messages=messages, tools=TOOLS, return_token_strs=True), "/tokenize")
        self.assertEqual(status, 200, answer)
        prompt = self.api.post(dict(tokens=answer["tokens"]), "/detokenize")[1]["prompt"]
        self.assertIn("assistant: calls find_pet of dog", prompt)
        self.assertIn("tool: Rex", prompt)
        self.assertIn("find_pet, go_home, by", prompt)
        self.assertEqual(len(self.chat(messages=messages)["choices"]), 1)

    def test_a_call_that_breaks_off_is_as_it_is(self):
        whole = calls_of(self.chat(tool_choice=CHOICES["named"]["tool_choice"], temperature=0)["choices"][0]["message"])[0][1]
        seen = set()
        for most in range(1, 60, 6):
            choice = self.chat(tool_choice=CHOICES["named"]["tool_choice"], temperature=0, max_tokens=most)["choices"][0]
            if choice["finish_reason"] != "length":
                break
            for _, arguments in calls_of(choice["message"]):
                self.assertTrue(whole.startswith(arguments), arguments)
                seen.add(arguments)
        self.assertTrue(seen)


if __name__ == "__main__":
    unittest.main(verbosity=2)
