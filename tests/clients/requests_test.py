#!/usr/bin/env python3
"""Posts the requests that real clients have sent (requests.jsonl, README.md) and checks their answers. Needs none of the clients."""
import json
import pathlib
import unittest

from server import cluster_for_clients

REQUESTS = [json.loads(line) for line in pathlib.Path(__file__).with_name("requests.jsonl").read_text(encoding="utf8").splitlines()]


def events_of(body):
    """The events of a stream, which must end by [DONE]."""
    lines = [line for line in body.split("\n") if line and not line.startswith(":")]
    if lines[-1] != "data: [DONE]" or not all(line.startswith("data: ") for line in lines):
        raise AssertionError(f"not a whole stream: {body[-300:]}")
    return [json.loads(line[len("data: "):]) for line in lines[:-1]]


def named_events_of(body):
    """The events of a stream of responses or messages, each with its type as its name."""
    events = []
    for text in body.rstrip("\n").split("\n\n"):
        lines = [line for line in text.split("\n") if not line.startswith(":")]
        if not lines:
            continue
        name, data = lines
        events.append(json.loads(data.removeprefix("data: ")))
        if name != f"event: {events[-1]['type']}":
            raise AssertionError(f"not the name of its event: {text[:300]}")
    return events


def text_of(answer):
    """The text of a response or message."""
    parts = answer.get("content") or [part for item in answer.get("output", []) for part in item.get("content", [])]
    return "".join(part["text"] for part in parts if part["type"] in ("text", "output_text"))


def joined(events, chat):
    """The answer that the events of a stream add up to."""
    choices, usage = {}, None
    for event in events:
        usage = event.get("usage") or usage
        for given in event["choices"]:
            choice = choices.setdefault(given["index"], dict(text="", scores=[], finish_reason=None, role=None, calls=[]))
            delta = given["delta"] if chat else given
            choice["text"] += delta.get("content" if chat else "text") or ""
            for call in delta.get("tool_calls", []):
                if call["index"] == len(choice["calls"]):
                    choice["calls"].append((call["function"]["name"], ""))
                name, arguments = choice["calls"][call["index"]]
                choice["calls"][call["index"]] = (name, arguments + call["function"]["arguments"])
            choice["role"] = delta.get("role", choice["role"])
            choice["finish_reason"] = given["finish_reason"] or choice["finish_reason"]
            if given["logprobs"]:
                choice["scores"] += given["logprobs"]["content"] if chat else given["logprobs"]["tokens"]
    return [choices[i] for i in sorted(choices)], usage


def whole(answer, chat):
    """The same of an answer that is not streamed."""
    choices = []
    for given in answer["choices"]:
        message = given["message"] if chat else dict(content=given["text"], role=None)
        scores = (given["logprobs"] or {}).get("content" if chat else "tokens", [])
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])]
        choices.append(dict(text=message["content"] or "", scores=scores, finish_reason=given["finish_reason"], role=message["role"],
                            calls=calls))
    return choices, answer["usage"]


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.context = cluster_for_clients()
        cls.api = cls.context.__enter__().api

    @classmethod
    def tearDownClass(cls):
        cls.context.__exit__(None, None, None)

    def send(self, request):
        """(status, headers, text)"""
        connection = self.api.connect()
        try:
            body = None if "body" not in request else json.dumps(request["body"]).encode()
            connection.request(request["method"], request["path"], body, request["headers"])
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def check_choices(self, body, choices, usage, chat):
        prompts = body.get("prompt", "")
        several = isinstance(prompts, list) and prompts and not isinstance(prompts[0], int)
        self.assertEqual(len(choices), body.get("n", 1) * (len(prompts) if several else 1))
        asks_usage = not body.get("stream") or (body.get("stream_options") or {}).get("include_usage")
        self.assertEqual(usage is not None, bool(asks_usage))
        most = body.get("max_completion_tokens", body.get("max_tokens"))
        if usage and most is not None:
            self.assertLessEqual(usage["completion_tokens"], most * len(choices))
        for choice in choices:
            self.assertIn(choice["finish_reason"], ("stop", "length", "tool_calls"))
            names = [tool["function"]["name"] for tool in body.get("tools") or []]
            for name, arguments in choice["calls"]:
                self.assertIn(name, names)
                if choice["finish_reason"] == "tool_calls":
                    self.assertIsInstance(json.loads(arguments), dict)
            if choice["finish_reason"] != "length" and body.get("tool_choice") not in (None, "auto", "none"):
                self.assertTrue(choice["calls"])
            self.assertEqual(choice["role"], "assistant" if chat else None)
            self.assertEqual(bool(choice["scores"]), body.get("logprobs") not in (None, False))
            if body.get("ignore_eos"):
                self.assertEqual(choice["finish_reason"], "length")
            if body.get("echo"):
                self.assertTrue(choice["text"].startswith(prompts[0] if several else prompts))
            if (body.get("response_format") or {}).get("type") in ("json_schema", "json_object") and choice["finish_reason"] == "stop":
                self.assertIsInstance(json.loads(choice["text"]), dict)

    def check_other_form(self, body, text):
        """A whole or streamed response or message."""
        if not body.get("stream"):
            answer, streamed = json.loads(text), None
        else:
            events = named_events_of(text)
            streamed = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
            streamed += "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
            self.assertIn(events[-1]["type"], ("response.completed", "response.incomplete", "message_stop"))
            if events[-1]["type"] == "message_stop":
                self.assertEqual(events[0]["type"], "message_start")
                self.assertEqual(events[-2]["type"], "message_delta")
                answer = dict(events[0]["message"], usage=events[-2]["usage"], content=[{"type": "text", "text": streamed}])
            else:
                answer = events[-1]["response"]
        self.assertIn(answer.get("object", answer.get("type")), ("response", "message"))
        if streamed is not None:
            self.assertEqual(text_of(answer), streamed)
        most = body.get("max_output_tokens", body.get("max_tokens"))
        if most is not None:
            self.assertLessEqual(answer["usage"]["output_tokens"], most)

    def test_every_request(self):
        self.assertGreater(len(REQUESTS), 80)
        for i, request in enumerate(REQUESTS):
            with self.subTest(line=i + 1, client=request["client"], name=request["name"]):
                status, headers, text = self.send(request)
                self.assertEqual(status, request["status"], text[:500])
                ignored = headers.get("X-Coppice-Ignored", "")
                self.assertEqual(sorted(ignored.split(",")) if ignored else [], sorted(request.get("ignored", [])))
                if status != 200:
                    self.assertEqual(json.loads(text)["error"]["code"], request["code"])
                    continue
                body = request.get("body")
                if request["method"] == "HEAD":
                    self.assertEqual(text, "")
                    continue
                if request["path"].split("?")[0].endswith(("/responses", "/messages")):
                    self.check_other_form(body, text)
                    continue
                if not request["path"].endswith("/completions"):
                    self.assertTrue(json.loads(text) if headers["Content-Type"].startswith("application/json") else text)
                    continue
                chat = request["path"].endswith("/chat/completions")
                if body.get("stream"):
                    self.assertTrue(headers["Content-Type"].startswith("text/event-stream"))
                    choices, usage = joined(events_of(text), chat)
                else:
                    choices, usage = whole(json.loads(text), chat)
                self.check_choices(body, choices, usage, chat)


if __name__ == "__main__":
    unittest.main(verbosity=2)
