"""Clients that send mixed requests and compare each answer with the one that was recorded before anything was disturbed."""
import contextlib
import json
import pathlib
import random
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from api_client import read_events  # noqa: E402
from stopwatch import Stopwatch  # noqa: E402

PATIENCE_S = 180  # on a stopwatch; an answer that takes longer hangs
PROMPTS = [
    "Once upon a time, there was a little girl named Lily.",
    "Once upon a time, there was a big bear who did not like the rain.",
    "There was a mouse who lived behind the oven.",
    "Once upon a time, there was a",
]
SCHEMA = {"type": "object", "required": ["title", "year"], "additionalProperties": False,
          "properties": {"title": {"type": "string", "maxLength": 12}, "year": {"type": "integer", "minimum": 1900, "maximum": 2026}}}
FORMATS = [{"json": SCHEMA}, {"regex": r" She (saw |had )?a (bird|boat|tree)"}, {"choice": ["Lily", "Tom and Mia", "Zürich"]}]
# Only reproducible methods: any other ends with replica_lost when text has been sent, and its answer may depend on drafts.
DISTRIBUTIONS = [
    dict(decoding="multinomial", temperature=0),
    dict(decoding="multinomial", temperature=0.9),
    dict(decoding="multinomial", temperature=1.2, top_p=0.9, top_k=40, n=3),
    dict(decoding="multinomial", temperature=0, speculative=dict(method="speculative_beam_search", draft_width=4, draft_depth=3)),
    dict(decoding="beam_sampling", beam_width=4, n=4),
    dict(decoding="beam_sampling", beam_width=8, n=2, speculative=dict(method="joint_gumbel_coupling", draft_width=6, draft_depth=3)),
    dict(decoding="beam_sampling_without_replacement", beam_width=4, n=4),
    dict(decoding="beam_search", beam_width=4, n=4),
    dict(decoding="beam_search", beam_width=16, n=3, early_stopping="never", length_penalty=0.5),
    dict(decoding="beam_search", beam_width=3, n=1, speculative=False),
]


def mixed_bodies(seed, count):
    """Bodies of requests, drawn from the seed: distributions, prompts, lengths, formats, logprobs, streams."""
    draw = random.Random(seed)
    bodies = []
    for i in range(count):
        body = dict(DISTRIBUTIONS[i % len(DISTRIBUTIONS)], prompt=draw.choice(PROMPTS), seed=draw.randrange(1 << 40), return_token_ids=True,
                    max_tokens=draw.choice((1, 4, 16, 40, 100)), stream=draw.random() < 0.6)
        if draw.random() < 0.2:
            body.update(structured_outputs=draw.choice(FORMATS), max_tokens=48)
        elif draw.random() < 0.4:
            body.update(ignore_eos=True)
        if draw.random() < 0.3:
            body.update(logprobs=draw.randrange(6))
        bodies.append(body)
    return bodies


class Failed(Exception):
    """A request without its whole answer."""


def add(choices, event):
    """Adds an event's part of each choice to what is known of it. A whole answer is one event."""
    for part in event["choices"]:
        choice = choices.setdefault(part["index"], dict(text="", token_ids=[], logprobs=[]))
        choice["text"] += part["text"]
        choice["token_ids"] += part.get("token_ids") or []
        logprobs = part.get("logprobs") or {}
        choice["logprobs"] += zip(logprobs.get("tokens", ()), logprobs.get("token_logprobs", ()), map(str, logprobs.get("top_logprobs") or ()))
        choice.update((name, part[name]) for name in ("finish_reason", "score", "joint_logprob") if part.get(name) is not None)


class Request:
    """One request under way. Another thread may abandon it."""

    def __init__(self, api, body):
        self.body, self.watch, self.abandoned = body, Stopwatch(), False
        self.connection = api.connect()

    def answer(self):
        """{index: choice}. Raises Failed with what came instead."""
        try:
            self.connection.request("POST", "/v1/completions", json.dumps(self.body), {"Content-Type": "application/json"})
            response = self.connection.getresponse()
            if response.status != 200:
                raise Failed(f"status {response.status}: {response.read()}")
            choices, events = {}, list(read_events(response)) if self.body["stream"] else [json.loads(response.read()), "[DONE]"]
            if "error" in events[-1] or events[-1] != "[DONE]":
                raise Failed(f"the stream ends with {events[-1]}")
            for event in events[:-1]:
                add(choices, event)
            return choices
        except (OSError, ValueError, AssertionError, IndexError, AttributeError) as error:  # the last: abandoned
            raise Failed(repr(error)) from error
        finally:
            self.connection.close()

    def abandon(self):
        self.abandoned = True
        with contextlib.suppress(OSError, AttributeError):  # there is no connection yet, or it has ended just now
            self.connection.sock.shutdown(2)


class Clients:
    """Threads that send the bodies again and again, in an order of their own, until they are told to stop or all is sent."""

    def __init__(self, api, count, seed, most):
        self.api, self.most = api, most
        self.bodies = mixed_bodies(seed, 60)
        self.wanted = [Request(api, body).answer() for body in self.bodies]
        self.lock = threading.Lock()
        self.sent = self.answered = self.hung = 0
        self.failed, self.wrong = [], []  # texts
        self.stopped = threading.Event()
        self.under_way = set()
        self.threads = [threading.Thread(target=self.run, args=(random.Random(f"{seed} {i}"),), daemon=True) for i in range(count)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def run(self, draw):
        while not self.stopped.is_set():
            i = draw.randrange(len(self.bodies))
            with self.lock:
                if self.sent == self.most:
                    return
                self.sent += 1
                request = Request(self.api, self.bodies[i])
                self.under_way.add(request)
            try:
                got, problem = request.answer(), None
            except Failed as error:
                got, problem = None, str(error)
            with self.lock:
                self.under_way.remove(request)
                self.answered += 1
                if problem is not None and not request.abandoned:
                    self.failed.append(f"{problem}; request {request.body}")
                elif problem is None and got != self.wanted[i]:
                    self.wrong.append(f"got {got}, not {self.wanted[i]}; request {request.body}")

    def look_for_hung(self):
        with self.lock:
            late = [r for r in self.under_way if not r.abandoned and r.watch.seconds() > PATIENCE_S]
            self.hung += len(late)
            for request in late:
                request.abandon()

    def stop(self):
        """Waits for the answers that are due."""
        self.stopped.set()
        while any(thread.is_alive() for thread in self.threads):
            self.look_for_hung()
            for thread in self.threads:
                thread.join(0.05)

    def summary(self):
        return f"requests {self.sent}, failed {len(self.failed)}, wrong {len(self.wrong)}, hung {self.hung}"
