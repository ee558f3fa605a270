"""What is compared: a cluster as deploy/cluster.sh starts it, asked over HTTP, and peers as processes that answer lines of JSON
(answering.py). An engine has `name`, `version`, `start(kind)`, `generate(prompts, width, tokens) -> (seconds, ids)` and `stop()`."""
import json
import os
import pathlib
import random
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "training"))
from evaluation.server import Server, ServerError  # noqa: E402
from workload import FILE  # noqa: E402

# How Coppice keeps its weights: --dtype and the worker's --weight_dtype.
COPPICE_TYPES = {"f32": ("f32", "auto"), "bf16": ("bf16", "auto"), "int8": ("bf16", "int8"), "int4": ("bf16", "int4"),
                 FILE: ("auto", "auto")}


class EngineError(Exception):
    """Names the engine and what it cannot do."""


def free_ports(count):
    """Free ports below the range for outgoing connections."""
    ports = []
    while len(ports) < count:
        port = random.SystemRandom().randrange(10000, 32000)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


class Coppice:
    """One replica of one rank, without drafts unless there is a draft model. Requests of a group are sent at the same time."""
    beams = True

    def __init__(self, model, work, threads, draft, timeout_s, name="coppice"):
        self.name, self.model, self.work, self.threads = name, model, work, threads
        self.draft, self.timeout_s, self.state, self.cached = draft, timeout_s, None, 0

    def flags(self):
        """{role: flags} beside those of the type."""
        return {}

    def tables(self):
        """More lines of the cluster file."""
        return []

    def start(self, kind):
        listen, control = free_ports(2)
        dtype, weights = COPPICE_TYPES[kind]
        flags = self.flags()
        flags["worker"] = [f"--weight_dtype={weights}", *flags.get("worker", [])]
        text = [f"target = {json.dumps(str(self.model))}", f"dtype = \"{dtype}\"", f"threads = {self.threads}",
                f"drafts = {int(self.draft is not None)}", *([f"draft = {json.dumps(str(self.draft))}"] if self.draft else []),
                "[coordinator]", f"listen = \"127.0.0.1:{listen}\"", f"control_port = {control}",
                "[flags]", *(f"{role} = {json.dumps(given)}" for role, given in flags.items()), *self.tables()]
        file = self.work / "cluster.toml"
        file.write_text("\n".join(text) + "\n")
        self.state = self.work / "cluster"
        started = subprocess.run([ROOT / "deploy/cluster.sh", "up", "--cluster", file, "--state", self.state], capture_output=True, text=True)
        if started.returncode != 0:
            raise EngineError(f"{self.name}: the cluster does not start: {(started.stderr.strip() or started.stdout.strip()).splitlines()[-1]}")
        self.server = Server(f"http://127.0.0.1:{listen}", self.timeout_s)
        self.version = self.fetch("/version")["commit"]

    def stop(self):
        if self.state is not None:
            subprocess.run([ROOT / "deploy/cluster.sh", "down", "--state", self.state], capture_output=True)
            self.state = None

    def fetch(self, path, body=None):
        try:
            return self.server.fetch(path, body)
        except ServerError as error:
            raise EngineError(f"{self.name}: {error}") from error

    def tokens_of(self, text):
        """(ids of the text, the special ids that a prompt begins with)"""
        whole = self.fetch("/tokenize", {"prompt": text})["tokens"]
        bare = self.fetch("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
        return bare, whole[:len(whole) - len(bare)]

    def body(self, ids, width, tokens):
        decoding = {"temperature": 0} if width == 1 else {"decoding": "beam_search", "beam_width": width, "n": 1}
        return dict(decoding, prompt=ids, max_tokens=tokens, ignore_eos=True, return_token_ids=True,
                    speculative="auto" if self.draft else False)

    def answers(self, bodies):
        """(seconds, [(answer, seconds) of each]) of requests that are sent at the same time."""
        answers = [None] * len(bodies)

        def ask(i):
            try:
                sent = time.perf_counter()
                answers[i] = self.fetch("/v1/completions", bodies[i]), time.perf_counter() - sent
            except EngineError as error:
                answers[i] = error

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(1, len(bodies))]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        ask(0)
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - begin
        for answer in answers:
            if isinstance(answer, EngineError):
                raise answer
        return seconds, answers

    def generate(self, prompts, width, tokens):
        seconds, answers = self.answers([self.body(ids, width, tokens) for ids in prompts])
        self.cached += sum(answer["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0) for answer, _ in answers)
        return seconds, [answer["choices"][0]["token_ids"] for answer, _ in answers]


class Peer:
    """A process of the peers' environment."""

    def __init__(self, name, python, program, beams, model, work, threads, timeout_s):
        self.name, self.beams, self.timeout_s, self.process = name, beams, timeout_s, None
        self.command = [python, "-B", program, model, work]
        self.threads = threads

    def start(self, kind):
        # Without this shell's OMP_WAIT_POLICY: deploy/environment.sh sets what is best for Coppice, and it makes llama.cpp slow.
        environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        # In a session of its own, so that stop() ends what it has started; it also ends when its standard input does.
        self.process = subprocess.Popen([str(a) for a in (*self.command, kind, self.threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, start_new_session=True,
                                        env=dict(environment, OMP_NUM_THREADS=str(self.threads), TOKENIZERS_PARALLELISM="false"))
        ready = self.answer("start")
        self.version, self.url = ready["version"], ready.get("url")

    def answer(self, what):
        """The next line of the process. EngineError if it says so, ends, or takes too long."""
        line, deadline = b"", time.monotonic() + self.timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0, deadline - time.monotonic())):
                    raise EngineError(f"{self.name}: {what}: no answer in {self.timeout_s:g} s")
                part = os.read(self.process.stdout.fileno(), 1 << 20)
                if not part:
                    raise EngineError(f"{self.name}: {what}: its process has ended ({self.process.wait()})")
                line += part
        content = json.loads(line)
        if "error" in content:
            raise EngineError(f"{self.name}: {what}: {content['error']}")
        return content

    def ask(self, what, **fields):
        try:
            self.process.stdin.write(json.dumps(fields).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise EngineError(f"{self.name}: its process has ended ({self.process.wait()})") from error
        return self.answer(what)

    def generate(self, prompts, width, tokens):
        answer = self.ask(f"{len(prompts)} prompts, width {width}", prompts=prompts, width=width, tokens=tokens)
        return answer["seconds"], answer["ids"]

    def stop(self):
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        self.process = None
