"""A server for tests of training/distill_draft.py: a chat template, and answers that are functions of the request."""
import http.server
import json
import math
import threading

EOS = 2
BEFORE, AFTER = [1, 5, 6], [7, 8]  # around the message of a user


def completion(body):
    """Without log-probabilities [10 + seed % 7, 20, EOS] and a text of seed % 9. An answer has one id more than its seed's last digit: the ids 30, 31, ..., EOS. For the
    id itself the target has 1/2, for the ids 40, 41, ... 1/4, 1/8, ..., as many as were asked for; but the last id, EOS, has 2**-22,
    less than any of them."""
    seed = body["seed"]
    if "logprobs" not in body:
        return {"token_ids": [10 + seed % 7, 20, EOS][:body["max_tokens"]], "text": f" {seed % 9} ", "logprobs": None}
    ids = list(range(30, 31 + seed % 10)) + [EOS]
    rows = []
    for token in ids:
        row = {f"token_id:{40 + i}": -(i + 2) * math.log(2) for i in range(body["logprobs"])}
        row[f"token_id:{token}"] = -(22 if token == EOS else 1) * math.log(2)
        rows.append(row)
    own = [row[f"token_id:{token}"] for row, token in zip(rows, ids)]
    return {"token_ids": ids, "logprobs": {"tokens": [f"token_id:{token}" for token in ids], "token_logprobs": own, "top_logprobs": rows}}


class FakeTarget:
    """with FakeTarget() as target: target.url, target.asked (bodies of completions). `before(number, body)` is called with each; it may
    return (status, answer) to refuse it."""

    def __init__(self, before=None, chat=True):
        self.before, self.chat, self.asked, self.lock = before, chat, [], threading.Lock()

    def answer(self, path, body):
        """(status, JSON)"""
        if path == "/v1/models":
            return 200, {"data": [{"id": "fake", "max_model_len": 1000, "capabilities": {"chat": self.chat}}]}
        if path == "/tokenize":
            text = body["messages"][0]["content"] if "messages" in body else body["prompt"]
            ids = [100 + ord(letter) for letter in text]
            return 200, {"tokens": BEFORE + ids + AFTER if "messages" in body else ids}
        with self.lock:
            self.asked.append(body)
            number = len(self.asked)
        refused = self.before(number, body) if self.before else None
        return refused or (200, {"choices": [completion(body)]})

    def __enter__(self):
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def reply(self, body):
                status, answer = fake.answer(self.path, body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                self.reply(None)

            def do_POST(self):
                self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
