"""A proxy that writes each request that passes through it, and what is essential of its answer, as a JSON line. Standard library
only."""
import http.client
import http.server
import json
import threading
import urllib.parse

HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


class Recorder:
    """with Recorder(url, path) as recorder: the client talks to recorder.url; recorder.client names it, and the file
    recorder.check what it does."""

    def __init__(self, url, path):
        self.target, self.path, self.client = urllib.parse.urlsplit(url), path, ""
        self.check = None
        self.lock = threading.Lock()

    def __enter__(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self):
                outer.forward(self)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = forward

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # a client that has gone
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def body(self, handler):
        if handler.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        parts = []
        while size := int(handler.rfile.readline().split(b";")[0], 16):
            parts.append(handler.rfile.read(size))
            handler.rfile.readline()
        handler.rfile.readline()
        return b"".join(parts)

    def forward(self, handler):
        body = self.body(handler)
        connection = http.client.HTTPConnection(self.target.hostname, self.target.port, timeout=600)
        try:
            connection.request(handler.command, handler.path, body,
                               {k: v for k, v in handler.headers.items() if k.lower() not in HOP})
            answer = connection.getresponse()
            first = answer.read() if answer.status >= 400 else b""
            self.write(handler, body, answer, first)
            handler.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP:
                    handler.send_header(name, value)
            handler.send_header("Connection", "close")
            handler.end_headers()
            handler.wfile.write(first)
            while data := answer.read1(65536):
                handler.wfile.write(data)
                handler.wfile.flush()
        finally:
            handler.close_connection = True
            connection.close()

    def write(self, handler, body, answer, error):
        try:
            parsed = json.loads(body) if body else None
        except ValueError:
            parsed = body.decode("utf8", "replace")
        name = self.check.read_text() if self.check and self.check.exists() else ""
        ignored = answer.getheader("X-Coppice-Ignored", "")
        line = dict(client=self.client, name=name, method=handler.command, path=handler.path, headers=dict(handler.headers.items()),
                    body=parsed, status=answer.status, code=json.loads(error)["error"]["code"] if error else "",
                    ignored=ignored.split(",") if ignored else [])
        with self.lock, open(self.path, "a", encoding="utf8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
