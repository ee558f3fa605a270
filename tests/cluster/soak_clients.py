"""The clients of soak_test.py: threads that send requests of all kinds, and pause together when they are told to."""
import contextlib
import http.client
import json
import pathlib
import random
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "chaos"))
from clients import PATIENCE_S, SCHEMA, Failed, Request, mixed_bodies  # noqa: E402
from stopwatch import wait_until  # noqa: E402

WORDS = "the a little bear mouse tree river house was saw had big red sad happy went found said and then one day".split()
ABANDON_WITHIN_S = 0.4
MOST_FAULTS = 5  # then it ends: a fault that repeats itself is said once
# (path, body, status): refused before anything runs.
INVALID = [
    ("/v1/completions", b'{"prompt": ', 400),
    ("/v1/completions", b"[" * 60, 400),
    ("/v1/completions", b'{"prompt": "a", "temperature": -1}', 400),
    ("/v1/completions", b'{"prompt": "a", "n": 1000}', 400),
    ("/v1/completions", b'{"prompt": "a", "decoding": "beam_search", "beam_width": 4, "n": 5}', 400),
    ("/v1/completions", b'{"prompt": "a", "structured_outputs": {"regex": "(("}}', 400),
    ("/v1/completions", b'{"prompt": "a", "structured_outputs": {"json": {"$ref": "#/none"}}}', 400),
    ("/v1/completions", json.dumps({"prompt": "Once upon a time " * 400}).encode(), 400),
    ("/v1/chat/completions", b'{"messages": [{"role": "nobody", "content": "a"}]}', 400),
    ("/v1/nothing", b"{}", 404),
]
QUESTIONS = ("/health", "/ready", "/metrics", "/cluster", "/v1/models", "/version")


class SoakClients:
    """`counts`: how many requests of each kind have ended."""

    def __init__(self, api, count, seed):
        self.api, self.seed = api, seed
        self.bodies = mixed_bodies(seed, 60)
        self.wanted = [Request(api, body).answer() for body in self.bodies]
        self.lock = threading.Lock()
        self.counts, self.found = dict.fromkeys(KINDS, 0), []
        self.running = 0
        self.may_run, self.stopped = threading.Event(), threading.Event()
        self.may_run.set()
        self.threads = [threading.Thread(target=self.run, args=(random.Random(f"{seed} {i}"),), daemon=True) for i in range(count)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def run(self, draw):
        names, weights = list(KINDS), [weight for weight, _ in KINDS.values()]
        while not self.stopped.is_set():
            with self.lock:
                runs = self.may_run.is_set()
                self.running += runs
            if not runs:
                self.may_run.wait(1)
                continue
            kind = draw.choices(names, weights)[0]
            try:
                KINDS[kind][1](self, draw)
            except (Failed, OSError, ValueError, AssertionError, http.client.HTTPException) as error:
                self.fault(f"{kind}: {error!r}")
            with self.lock:
                self.counts[kind] += 1
                self.running -= 1

    def fault(self, text):
        with self.lock:
            self.found.append(text)

    def faults(self):
        with self.lock:
            return self.found[:MOST_FAULTS]

    def summary(self):
        with self.lock:
            return ", ".join(f"{count} {kind}" for kind, count in self.counts.items()) + f"; {len(self.found)} faults"

    @contextlib.contextmanager
    def paused(self):
        """Waits until no client has a request under way; then none sends another one within the block."""
        with self.lock:
            self.may_run.clear()
        try:
            if not wait_until(lambda: self.running == 0, PATIENCE_S):
                self.fault(f"{self.running} requests have no answer after {PATIENCE_S} s")
            yield
        finally:
            self.may_run.set()

    def wait(self, seconds):
        """Until so many seconds have passed, or there are faults."""
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at and not self.faults():
            time.sleep(0.05)

    def stop(self):
        self.stopped.set()
        self.may_run.set()
        for thread in self.threads:
            thread.join(PATIENCE_S)

    # The kinds of requests.

    def valid(self, draw):
        i = draw.randrange(len(self.bodies))
        got = Request(self.api, self.bodies[i]).answer()
        if got != self.wanted[i]:
            self.fault(f"got {got}, not {self.wanted[i]}; request {self.bodies[i]}")

    def new_prompt(self, draw):
        """A prompt that no cache has, sampled or in beams."""
        body = dict(draw.choice(self.bodies), prompt=" ".join(draw.choices(WORDS, k=draw.randrange(4, 90))), max_tokens=draw.choice((1, 8, 32)))
        Request(self.api, body).answer()

    def new_format(self, draw):
        """A format that no cache has, with drafts, so that the draft node's store of formats is full before its memory is watched."""
        properties = {f"{draw.choice(WORDS)}{draw.randrange(10**6)}": {"enum": draw.sample(WORDS, 2)} for _ in range(2)}
        schema = dict(SCHEMA, properties=properties, required=list(properties))
        form = draw.choice(({"json": schema}, {"regex": f" ({draw.choice(WORDS)}|{draw.randrange(10**6)})"}))
        Request(self.api, dict(prompt="Once upon", max_tokens=24, structured_outputs=form, stream=draw.random() < 0.5,
                               speculative=dict(draft_width=2, draft_depth=2))).answer()

    def chat(self, draw):
        message = dict(role="user", content=" ".join(draw.choices(WORDS, k=6)))
        answer = self.api.complete(dict(messages=[message], max_tokens=8), "/v1/chat/completions")
        assert answer["choices"][0]["message"]["role"] == "assistant", answer

    def invalid(self, draw):
        path, body, wanted = draw.choice(INVALID)
        status, answer = self.api.post_raw(body, path)
        assert status == wanted and "error" in answer, f"{status} {answer} for {body[:100]}"

    def abandoned(self, draw):
        request = Request(self.api, dict(draw.choice(self.bodies), max_tokens=100))
        timer = threading.Timer(draw.uniform(0, ABANDON_WITHIN_S), request.abandon)
        timer.start()
        try:
            request.answer()
        except Failed:
            if not request.abandoned:
                raise
        timer.cancel()
        timer.join()

    def cut_off(self, draw):
        """A connection that ends in the middle of a request, or of its answer."""
        body = json.dumps(dict(draw.choice(self.bodies), max_tokens=100)).encode()
        data = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        with socket.create_connection((self.api.host, self.api.port), self.api.timeout_s) as opened:
            opened.sendall(data[:draw.randrange(1, len(data) + 1)])
            time.sleep(draw.uniform(0, 0.1))

    def question(self, draw):
        path = draw.choice(QUESTIONS)
        status, text = self.api.get(path)
        assert status == 200 and text, f"{status} for {path}"
        tokens = self.api.complete({"prompt": "Once upon a time"}, "/tokenize")["tokens"]
        assert tokens, "no tokens"


# {name: (weight, what a client does)}
KINDS = {"valid": (8, SoakClients.valid), "new prompt": (3, SoakClients.new_prompt), "new format": (2, SoakClients.new_format),
         "chat": (1, SoakClients.chat), "invalid": (3, SoakClients.invalid), "abandoned": (2, SoakClients.abandoned),
         "cut off": (2, SoakClients.cut_off), "question": (2, SoakClients.question)}
