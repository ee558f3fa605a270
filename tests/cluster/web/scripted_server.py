"""A server that plays a coordinator to the page: it serves the page's files from the tree and scripted answers with made-up forests, at
any number of rounds a second, and breaks off where it is told to. What a real cluster does too seldom or too slowly for a test."""
import http.server
import json
import math
import pathlib
import random
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".svg": "image/svg+xml"}
WORDS = (" the", " a", " little", " girl", " named", " Lily", " went", " to", " park", " saw", " big", " tree", " and", " was", " happy", ",", ".",
         " dog", " who", " liked", " play", " with", " ball", "\n", " <b>", " ünïcode", " 🌳", " she", " said", " \"")


def model_card(name="fake-stories", chat=False, length=4096):
    methods = [{"name": "gumbel_top_k", "decodings": ["beam_sampling_without_replacement"], "lossless": True, "reproducible": True,
                "sampling_scopes": ["row", "row_raw"], "draft_form": "levels", "greedy_only": False}]
    return {"id": name, "object": "model", "max_model_len": length, "default_sampling_params": {},
            "capabilities": {"chat": chat, "methods": methods, "max_beam_width": 64, "max_n": 64, "max_draft_width": 64, "max_draft_depth": 16}}


def made_up_rounds(count, width=4, draft_width=8, depth=4, seed=1):
    """Rounds as a coordinator traces them: from each live beam a tree of drafts, some of which the target takes, and its own tokens."""
    rnd = random.Random(seed)
    next_path, live, scores, rounds = 1, [0], {0: 0.0}, []
    for number in range(count):
        nodes, paths, node_of = [], [], {}
        if number > 0 and draft_width:
            level = [-1 - r for r in range(len(live))]
            for _ in range(depth):
                parents = sorted(rnd.choice(level) for _ in range(draft_width))
                used, made = set(), []
                for parent in parents:
                    token = rnd.randrange(len(WORDS))
                    if (parent, token) in used:
                        continue
                    used.add((parent, token))
                    nodes.append({"parent": parent, "token": token, "text": WORDS[token], "log_prob": -abs(rnd.gauss(0.8, 0.6))})
                    made.append(len(nodes) - 1)
                level = made
        roots, layers, before = list(live), 0, [(path, -1 - i) for i, path in enumerate(live)]
        while True:  # layer by layer: drafted nodes where there are some, the target's own token otherwise
            layers += 1
            found, drafted = [], False
            children = [i for i, node in enumerate(nodes) if any(node["parent"] == at for _, at in before)]
            rnd.shuffle(children)
            for child in children[:width]:
                if rnd.random() < 0.75:
                    parent = next(path for path, at in before if at == nodes[child]["parent"])
                    found.append((parent, nodes[child]["token"], child))
                    drafted = True
            tries = 0
            while len(found) < width and tries < 20:
                tries += 1
                parent, token = rnd.choice(before)[0], rnd.randrange(len(WORDS))
                if all((parent, token) != (p, t) for p, t, _ in found):
                    found.append((parent, token, None))
            after = []
            for parent, token, child in found:
                paths.append({"path": next_path, "parent": parent, "token": token, "text": WORDS[token]})
                scores[next_path] = scores[parent] - abs(rnd.gauss(0.7, 0.4))
                if child is not None:
                    nodes[child]["path"] = next_path
                after.append((next_path, child if child is not None else math.inf))
                node_of[next_path] = child
                next_path += 1
            before = after
            if not drafted or layers > depth:
                break
        live = [path for path, _ in before]
        rounds.append({"prompt": 0, "sample": 0, "run": 0, "round": number, "time_ms": 8.0 * number, "round_ms": 8.1, "draft_wait_ms": 1.2, "draft_ms": 1.7,
                       "forward_ms": 5.4, "decision_ms": 0.08, "rows": len(roots) + len(nodes), "layers": layers, "roots": roots, "nodes": nodes,
                       "paths": paths, "beams": [{"path": path, "log_score": scores[path], "finished": False} for path in live]})
    return rounds


class Script:
    """What the server does next. Tests change it while it serves."""

    def __init__(self):
        self.card = model_card()
        self.rounds, self.rounds_per_s, self.rounds_per_event = 40, 50, 1
        self.shape = {}
        self.text = " there was a little girl."
        self.break_after = None  # rounds after which the connection closes without [DONE]
        self.down = False        # answers nothing
        self.bodies = []         # of every POST, in order


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send_body(self, body, content_type, status=200):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        script = self.server.script
        name = {"/": "page.html", "/docs": "docs.html"}.get(self.path, self.path.removeprefix("/web/"))
        file = ROOT / "coordinator/web" / pathlib.Path(name).name
        if script.down and self.path in ("/ready", "/cluster", "/v1/models"):
            self.close_connection = True
        elif self.path == "/v1/models":
            self.send_body(json.dumps({"object": "list", "data": [script.card]}).encode(), "application/json")
        elif self.path == "/ready":
            self.send_body(b'{"status": "ready"}', "application/json")
        elif self.path == "/cluster":
            state = {"state": "ready", "version": "test", "requests": {"running": 0, "waiting": 0, "max_queue": 256}, "replicas": [], "draft_nodes": [],
                     "events": []}
            self.send_body(json.dumps(state).encode(), "application/json")
        elif file.suffix in TYPES and file.is_file():
            self.send_body(file.read_bytes(), TYPES[file.suffix])
        else:
            self.send_body(b"{}", "application/json", 404)

    def event(self, text):
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def do_POST(self):
        script = self.server.script
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        script.bodies.append(body)
        if script.down:
            self.close_connection = True
            return
        usage = {"prompt_tokens": 4, "completion_tokens": 40, "speculation": {"method": "gumbel_top_k", "rounds": script.rounds, "target_passes": script.rounds,
                 "layers": 40, "block_efficiency": 2.5, "drafted_nodes": 100, "accepted_nodes": 60}}
        timings = {"queue_ms": 0.1, "first_token_ms": 8, "total_ms": 8.0 * script.rounds}
        choices = [{"index": i, "text": script.text, "finish_reason": "stop", "score": -0.5 - i / 10, "joint_logprob": -3.0 - i, "seed": 7}
                   for i in range(body.get("n", 1))]
        if not body.get("stream"):
            self.send_body(json.dumps({"choices": choices, "usage": usage, "timings": timings}).encode(), "application/json")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            rounds = made_up_rounds(script.rounds, **script.shape) if body.get("trace") else [None] * script.rounds
            begin, step = time.monotonic(), script.rounds_per_event
            for i in range(0, len(rounds), step):
                time.sleep(max(0, begin + i / script.rounds_per_s - time.monotonic()))
                if script.break_after is not None and i >= script.break_after:
                    self.close_connection = True
                    return
                if body.get("trace"):
                    self.event(json.dumps({"choices": [], "trace": rounds[i:i + step]}))
                if i == 0:
                    self.event(json.dumps({"choices": [{"index": 0, "text": "[begin]", "finish_reason": None}]}))
            self.event(json.dumps({"choices": choices}))
            self.event(json.dumps({"choices": [], "usage": usage, "timings": timings}))
            self.event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True  # the page has stopped the answer


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # a browser that closes a connection


class ScriptedServer:
    """with ScriptedServer() as server: server.port, server.script"""

    def __enter__(self):
        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.script = self.server.script = Script()
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
