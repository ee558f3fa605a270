"""What the statements of README.md are tested with: a cluster with keys, small limits and little KV, and plain HTTP to it."""
import http.client
import json
import pathlib
import socket
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from api_client import read_events  # noqa: E402
from cluster import ROOT, TARGET, Cluster  # noqa: E402
from stopwatch import SLOWDOWN, Stopwatch, at_most, wait_until  # noqa: E402

USER, ADMIN = "user-key-4f8a0e17c2", "admin-key-91b37de5aa"
ORIGIN = "https://pages.example"  # whose pages may use the API
MARKER = "marker-7391"  # sent in prompts, stops and users; must never be logged
PROMPT = f"One day, Tom of {MARKER} and his mom went to the store."
SHORT = dict(prompt=PROMPT, max_tokens=12)
BEAMS = dict(decoding="beam_search", beam_width=4)
KV_BLOCK = 16 * 5 * 2 * 32 * 4  # 16 tokens, 5 layers, K and V of 32 floats
KV_BLOCKS = 96
MAX_BODY = 65536
CONTEXT = 512


def configuration(folder, **limits):
    """Writes keys and the configuration file of the conformance cluster. Returns its flag."""
    folder = pathlib.Path(folder)
    (folder / "users").write_text(f"# users\n{USER} alice\n")
    (folder / "admins").write_text(f"{ADMIN} root\n")
    limits = dict(dict(max_queue=2048, max_body_bytes=MAX_BODY, max_beam_width=8), **limits)
    (folder / "conformance.toml").write_text(f"""
[coordinator]
api_keys_file = "{folder}/users"
admin_keys_file = "{folder}/admins"
keep_alive_interval = 1
allowed_origins = "{ORIGIN}"
chat_template = "chatml"
limits = {{ {", ".join(f"{name} = {value}" for name, value in limits.items())} }}

[worker]
kv_bytes = {KV_BLOCK * KV_BLOCKS}
""")
    return f"--config={folder}/conformance.toml"


class Answer:
    def __init__(self, status, headers, data):
        self.status, self.headers, self.data = status, headers, data

    @property
    def json(self):
        return json.loads(self.data)

    @property
    def error(self):
        return self.json["error"]


class ConformanceCluster(Cluster):
    def __init__(self, limits=None, flags=(), **arguments):
        self.keys = tempfile.TemporaryDirectory()
        flag = configuration(self.keys.name, **(limits or {}))
        super().__init__(coordinator_flags=(flag, *flags), worker_flags=(flag,), **arguments)
        self.api.connect = self.connect
        self.api.cluster = lambda: self.get("/cluster", ADMIN).json
        self.api.get = lambda path: (lambda a: (a.status, a.data.decode()))(self.get(path))

    def connect(self, timeout=None):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=at_most(timeout or 120))

    def call(self, method, path, body=None, key=USER, headers=None):
        """body: bytes, or what becomes JSON."""
        connection = self.connect()
        headers = dict(headers or {})
        if key:
            headers["Authorization"] = f"Bearer {key}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path, key=USER):
        return self.call("GET", path, key=key)

    def post(self, body, path="/v1/completions", key=USER, headers=None):
        return self.call("POST", path, body, key, {"Content-Type": "application/json", **(headers or {})})

    def admin(self, path, body, method="POST"):
        return self.call(method, path, body, ADMIN, {"Content-Type": "application/json"})

    def open_stream(self, body, path="/v1/completions"):
        connection = self.connect()
        connection.request("POST", path, json.dumps(dict(body, stream=True)),
                           {"Content-Type": "application/json", "Authorization": f"Bearer {USER}"})
        return connection, connection.getresponse()

    def raw(self, data, until=b"\r\n\r\n", timeout=20):
        """Sends bytes and returns what comes back until the text or the end of the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=at_most(timeout)) as connection:
            connection.sendall(data)
            received = b""
            while until not in received:
                piece = connection.recv(65536)
                if not piece:
                    break
                received += piece
            return received

    def metrics(self):
        """{series: value}"""
        found = {}
        for line in self.get("/metrics", None).data.decode().splitlines():
            if line and not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                found[series] = float(value)
        return found

    def blocks_used(self):
        return self.api.cluster()["replicas"][0]["kv"]["blocks_used"]

    def stop(self):
        super().stop()
        self.keys.cleanup()


class Statements(unittest.TestCase):
    """Tests of statements that share one cluster."""
    cluster = None

    def refused(self, body, param, code="invalid_value", path="/v1/completions"):
        """The message of a 400 that names the field."""
        answer = self.cluster.post(body, path)
        self.assertEqual(answer.status, 400, (body, answer.data))
        self.assertEqual((answer.error["param"], answer.error["code"]), (param, code), answer.error)
        return answer.error["message"]

    def served(self, body, path="/v1/completions"):
        answer = self.cluster.post(body, path)
        self.assertEqual(answer.status, 200, (body, answer.data))
        return answer.json

    def ask(self, **fields):
        return self.served(dict(SHORT, **fields))

    def stream(self, body, path="/v1/completions"):
        connection, response = self.cluster.open_stream(body, path)
        try:
            self.assertEqual(response.status, 200, response.read() if response.status != 200 else "")
            return list(read_events(response))
        finally:
            connection.close()

    def same(self, a, b):
        self.assertEqual(essence(a), essence(b))


def essence(answer):
    """What "same answer" compares: texts, token ids, finish reasons."""
    return [(c["index"], c["text"], c.get("token_ids"), c["finish_reason"]) for c in answer["choices"]]


def joined(events):
    """{index: (text, ids, finish_reason)} of the choices of a stream."""
    found = {}
    for event in events:
        for choice in event["choices"]:
            text, ids, _ = found.get(choice["index"], ("", [], None))
            found[choice["index"]] = (text + choice["text"], ids + (choice.get("token_ids") or []), choice["finish_reason"])
    return found


def together(calls):
    """The results of functions that run at the same time. Raises what they raise."""
    results = [None] * len(calls)

    def run(i):
        try:
            results[i] = calls[i]()
        except Exception as error:  # noqa: BLE001, given to the caller
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


__all__ = [name for name in dir() if not name.startswith("_")]
