"""A coordinator for tests of training/evaluate.py: it answers at once, and each answer is a function of the request. It counts what it
is asked."""
import http.server
import json
import threading

CONTEXT = 256
ANSWERS = {0: " SELECT city  WHERE iata = ssg ", 1: " SELECT city WHERE iata = sss"}


def completion(body):
    """The answer to a completion or a chat. The text of a choice is right unless it is the second of a multinomial request. Every
    choice has two tokens, of log-probabilities -0.25 and -0.75."""
    drafts = body["speculative"] is not False
    chat = "messages" in body
    choices = []
    for i in range(body.get("n", 1)):
        text = ANSWERS[i == 1]
        entries = [{"token": "a", "logprob": -0.25}, {"token": "b", "logprob": -0.75}]
        scored = {"content": entries} if chat else {"token_logprobs": [-0.25, -0.75]}
        choices.append({"index": i, **({"message": {"role": "assistant", "content": text}} if chat else {"text": text}),
                        "token_ids": [5, 2], "joint_logprob": -1.0 - i, "finish_reason": "stop",
                        "logprobs": scored if "logprobs" in body else None})
    spec = {"beam_tokens": 2 * len(choices), "layers": 4, "target_passes": 2 if drafts else 4, "drafted_nodes": 8 if drafts else 0,
            "accepted_nodes": 2 if drafts else 0, "plain_rounds": 0}
    return {"choices": choices, "usage": {"completion_tokens": 2 * len(choices), "energy_joules": 0.5, "speculation": spec}}


class FakeServer:
    """with FakeServer() as server: server.url, server.bodies. `before(number, body)` is called with each completion; it may return
    (status, answer) to refuse it."""

    def __init__(self, before=None, tokens=10):
        self.before, self.tokens, self.bodies, self.lock = before, tokens, [], threading.Lock()

    def __enter__(self):
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def send(self, status, answer):
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                self.send(200, {"/v1/models": {"data": [{"id": "fake"}]}, "/version": {"commit": "0"},
                                "/cluster": {"draft_nodes": [{"model": "small", "state": "ready"}]}}[self.path])

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/tokenize":
                    return self.send(200, {"count": fake.tokens, "max_model_len": CONTEXT})
                with fake.lock:
                    fake.bodies.append((self.path, body))
                    number = len(fake.bodies)
                refused = fake.before(number, body) if fake.before else None
                self.send(*(refused or (200, completion(body))))

        class Listener(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):
                pass  # the client has gone

        self.server = Listener(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
