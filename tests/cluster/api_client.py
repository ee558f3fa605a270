"""Plain HTTP to a coordinator: completions, server-sent events, cluster state. Standard library only."""
import http.client
import json
import threading

from stopwatch import SLOWDOWN, at_most

KEPT_BY_SANITIZERS = (256 << 20) if SLOWDOWN > 1 else 0  # bytes of freed memory, to find late uses of it


class ApiClient:
    def __init__(self, port, timeout_s=60, host="127.0.0.1"):
        self.host, self.port, self.timeout_s = host, port, at_most(timeout_s)

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=self.timeout_s)

    def get(self, path, headers={}):
        """(status, body text)"""
        connection = self.connect()
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def cluster(self):
        return json.loads(self.get("/cluster")[1])

    def post_raw(self, data, path="/v1/completions", headers=None):
        """Posts a body of bytes. Returns (status, parsed answer)."""
        connection = self.connect()
        try:
            connection.request("POST", path, data, headers or {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def post(self, body, path="/v1/completions"):
        return self.post_raw(json.dumps(body).encode(), path)

    def complete(self, body, path="/v1/completions"):
        """Returns the answer of a completion, which must succeed."""
        status, answer = self.post(body, path)
        if status != 200:
            raise AssertionError(f"status {status}: {answer}")
        return answer

    def complete_all(self, bodies):
        """The answers of completions that run at the same time, in the order of the bodies."""
        answers = [None] * len(bodies)

        def run(i):
            try:
                answers[i] = self.complete(bodies[i])
            except (AssertionError, OSError, ValueError) as error:
                answers[i] = error

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def open_stream(self, body, path="/v1/completions"):
        """(connection, response) of a streamed completion; the caller closes the connection."""
        connection = self.connect()
        connection.request("POST", path, json.dumps(dict(body, stream=True)),
                           {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def stream(self, body, on_event=None, path="/v1/completions"):
        """The events of a streamed completion: parsed JSON objects, then the string "[DONE]"."""
        connection, response = self.open_stream(body, path)
        try:
            if response.status != 200:
                raise AssertionError(f"status {response.status}: {response.read()}")
            events = []
            for event in read_events(response):
                events.append(event)
                if on_event:
                    on_event(event, len(events))
            return events
        finally:
            connection.close()


def read_events(response):
    """Yields the events of a text/event-stream body and leaves out comments. Each line must be valid UTF-8 by itself."""
    for line in response:
        text = line.decode("utf8").rstrip("\n")
        if text.startswith("data: "):
            data = text[len("data: "):]
            yield data if data == "[DONE]" else json.loads(data)
        elif text and not text.startswith(":"):
            raise AssertionError(f"not an event: {text!r}")


def outcome(answer):
    """What must not depend on speculation, batch or draft node: token ids, text, scores and finish reasons, in order."""
    return [(c["index"], c["token_ids"], c["text"], c.get("score"), c.get("joint_logprob"), c["finish_reason"])
            for c in answer["choices"]]
