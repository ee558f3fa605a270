#!/usr/bin/env python3
"""Optional: the OpenAI Python client, unchanged, against a whole cluster. Needs the package openai:

  pip install openai
"""
import asyncio
import enum
import tempfile
import typing
import unittest

import openai
import pydantic

from chat_test import MESSAGES, PROMPT, TEMPLATE
from cluster import Cluster
from model_folders import ended_by_eos_alone

MODEL = "target"  # the name of the folder
LIMITS = dict(model=MODEL, max_tokens=40, seed=4)


class OpenAiClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        target = ended_by_eos_alone(f"{cls.folder.name}/{MODEL}")
        (target / "chat_template.jinja").write_text(TEMPLATE)
        cls.cluster = Cluster(target=target)
        cls.cluster.__enter__()
        cls.url = f"http://127.0.0.1:{cls.cluster.port}/v1"
        cls.client = openai.OpenAI(base_url=cls.url, api_key="none")

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.cluster.__exit__(None)
        cls.folder.cleanup()

    def chat(self, **fields):
        return self.client.chat.completions.create(messages=MESSAGES, **dict(LIMITS, **fields))

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], [MODEL])
        self.assertEqual(self.client.models.retrieve(MODEL).id, MODEL)

    def test_chat_is_the_completion_of_its_prompt(self):
        answer = self.chat()
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.object, "chat.completion")
        completion = self.client.completions.create(prompt=PROMPT, **LIMITS)
        self.assertEqual(answer.choices[0].message.content, completion.choices[0].text)
        self.assertEqual(answer.usage.total_tokens, completion.usage.total_tokens)

    def test_answers_are_parsed_into_types(self):
        class Role(str, enum.Enum):
            ACTOR, DIRECTOR = "actor", "director"

        class Person(pydantic.BaseModel):
            name: typing.Annotated[str, pydantic.Field(max_length=8)]
            born: typing.Annotated[int, pydantic.Field(ge=1900, le=2026)]
            roles: typing.Annotated[list[Role], pydantic.Field(max_length=2)]
            died: typing.Optional[typing.Annotated[int, pydantic.Field(ge=1900, le=2026)]]

        for fields in ({}, dict(n=2, extra_body=dict(use_beam_search=True, beam_width=3))):
            answer = self.client.chat.completions.parse(messages=MESSAGES, response_format=Person, **dict(LIMITS, max_tokens=220, **fields))
            for choice in answer.choices:
                if choice.finish_reason == "stop":
                    self.assertIsInstance(choice.message.parsed, Person)
                    self.assertTrue(1900 <= choice.message.parsed.born <= 2026)
            self.assertIn("stop", [choice.finish_reason for choice in answer.choices], answer.choices)
        answer = self.chat(response_format={"type": "json_object"}, max_tokens=200)
        self.assertTrue(answer.choices[0].message.content.startswith("{"))
        answer = self.chat(extra_body=dict(structured_outputs={"choice": ["yes", "no"]}))
        self.assertIn(answer.choices[0].message.content, ("yes", "no"))

    def test_streams(self):
        whole = self.chat(n=2)
        texts, usage = {0: "", 1: ""}, None
        for chunk in self.chat(n=2, stream=True, stream_options=dict(include_usage=True)):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        self.assertEqual(texts, {c.index: c.message.content for c in whole.choices})
        self.assertEqual(usage.total_tokens, whole.usage.total_tokens)

    def test_logprobs(self):
        answer = self.chat(logprobs=True, top_logprobs=3)
        tokens = answer.choices[0].logprobs.content
        self.assertEqual(b"".join(bytes(token.bytes) for token in tokens if token.token != "</s>").decode().strip(),
                         answer.choices[0].message.content.strip())
        for token in tokens:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertGreaterEqual(token.top_logprobs[0].logprob, token.logprob)
        completion = self.client.completions.create(prompt=PROMPT, logprobs=3, **LIMITS)
        self.assertEqual(completion.choices[0].logprobs.token_logprobs, [token.logprob for token in tokens])

    def test_echo_scores_the_answer_again(self):
        beams = self.client.completions.create(prompt=PROMPT, logprobs=0, extra_body=dict(use_beam_search=True), **LIMITS)
        generated = beams.choices[0].logprobs.token_logprobs
        again = self.client.completions.create(model=MODEL, prompt=PROMPT + beams.choices[0].text, echo=True, logprobs=0,
                                               max_tokens=0)
        self.assertEqual(again.usage.completion_tokens, 0)
        scored = again.choices[0].logprobs.token_logprobs[1:]
        self.assertIsNone(again.choices[0].logprobs.token_logprobs[0])
        self.assertEqual(scored[beams.usage.prompt_tokens - 1:], generated[:len(scored) - beams.usage.prompt_tokens + 1])

    def test_stream_helper_assembles_the_message(self):
        with self.client.chat.completions.stream(messages=MESSAGES, stop=".", **LIMITS) as stream:
            stream.until_done()
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.content, self.chat(stop=".").choices[0].message.content)
        self.assertEqual(final.choices[0].finish_reason, "stop")

    def test_stop_and_limits(self):
        whole = self.chat().choices[0].message.content
        stop = whole.split()[3]
        self.assertEqual(self.chat(stop=[stop]).choices[0].message.content, whole[:whole.index(stop)])
        self.assertEqual(self.chat(max_tokens=3).choices[0].finish_reason, "length")
        answer = self.client.chat.completions.create(model=MODEL, messages=MESSAGES, max_completion_tokens=2)
        self.assertEqual(answer.usage.completion_tokens, 2)

    def test_beams_through_extra_body(self):
        answer = self.chat(n=3, extra_body=dict(use_beam_search=True, beam_width=4))
        self.assertEqual(len(answer.choices), 3)
        scores = [choice.score for choice in answer.choices]
        self.assertEqual(scores, sorted(scores, reverse=True))

    def test_errors_are_the_clients(self):
        with self.assertRaises(openai.BadRequestError) as refused:
            self.chat(tools=[dict(type="custom", custom=dict(name="f"))])
        self.assertEqual((refused.exception.param, refused.exception.code), ("tools[0].type", "unsupported_field"))
        with self.assertRaises(openai.NotFoundError):
            self.chat(model="other")
        with self.assertRaises(openai.APITimeoutError):
            self.client.with_options(timeout=0.001, max_retries=1).chat.completions.create(messages=MESSAGES, **LIMITS)

    def test_64_requests_at_once(self):
        async def ask():
            async with openai.AsyncOpenAI(base_url=self.url, api_key="none") as client:
                return await asyncio.gather(*(client.chat.completions.create(messages=MESSAGES, **dict(LIMITS, seed=i % 4))
                                              for i in range(64)))

        answers = asyncio.run(ask())
        for i, answer in enumerate(answers):
            self.assertEqual(answer.choices[0].message.content, answers[i % 4].choices[0].message.content)


if __name__ == "__main__":
    unittest.main(verbosity=2)
