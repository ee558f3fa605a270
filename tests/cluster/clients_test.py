#!/usr/bin/env python3
"""deploy/ask.py and deploy/chat.py against a stand-in for the coordinator: HTTPS, keys, and what they say of arguments and files that
they cannot use."""
import contextlib
import http.server
import json
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

from cluster import ROOT
from stopwatch import at_most
from tls_test import make_certificate

KEY = "a-key-0123456789"
CLIENTS = ("ask", "chat")
QUESTIONS = {"ask": {"prompt": "What?"}, "chat": {"title": "A chat", "path": "/v1/completions", "body": {"prompt": "What?"}}}
SPECULATION = dict(drafted_nodes=1, layers=2, target_passes=1, plain_rounds=0)
ANSWER = dict(choices=[dict(index=0, text="That.", token_ids=[1, 2], finish_reason="stop")],
              usage=dict(completion_tokens=2, speculation=SPECULATION))


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers a completion, streamed or whole, to a client that has the key."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {KEY}":
            return self.answer(401, b"no key")
        event = json.dumps(ANSWER).encode()
        self.answer(200, b"data: " + event + b"\n\ndata: [DONE]\n\n" if body.get("stream") else event)

    def answer(self, status, content):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(cert=None, key=None):
    """The port of such a server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *_: None  # a client that does not trust the certificate
        if cert:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(cert, key)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def certificate_of_a_ca(folder):
    """(certificate of a CA, certificate that it signed, key of that)"""
    ca, ca_key = make_certificate(folder, "ca")
    cert, key = pathlib.Path(folder, "signed.pem"), pathlib.Path(folder, "signed.key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=signed", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
                    "-CA", str(ca), "-CAkey", str(ca_key), "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return ca, cert, key


class Clients(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def file(self, *lines):
        path = pathlib.Path(self.folder, "questions.jsonl")
        path.write_bytes(b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines))
        return path

    def run_client(self, name, *arguments, key=None):
        """(exit status, stdout, stderr)"""
        environment = {k: v for k, v in os.environ.items() if k != "COPPICE_API_KEY"} | ({"COPPICE_API_KEY": key} if key else {})
        result = subprocess.run([sys.executable, "-B", ROOT / f"deploy/{name}.py", *map(str, arguments)], env=environment, text=True,
                                stdin=subprocess.DEVNULL, capture_output=True, timeout=at_most(60))
        return result.returncode, result.stdout, result.stderr

    def test_https_and_keys(self):
        ca, cert, key = certificate_of_a_ca(self.folder)
        with served(cert, key) as port:
            for name in CLIENTS:
                file = self.file(QUESTIONS[name])
                url = ("--url", f"https://127.0.0.1:{port}")
                for trusted in (ca, cert):
                    status, output, errors = self.run_client(name, *url, "--cert", trusted, "--api-key", KEY, file)
                    self.assertEqual((status, errors), (0, ""))
                    self.assertIn("That.", output)
                self.assertEqual(self.run_client(name, *url, "--cert", cert, file, key=KEY)[0], 0)
                status, _, errors = self.run_client(name, *url, "--cert", cert, file)
                self.assertEqual((status, errors), (1, f"{name}: 401 no key\n"))
                status, _, errors = self.run_client(name, *url, file, key=KEY)
                self.assertEqual(status, 1)
                self.assertRegex(errors, rf"\A{name}: https://127.0.0.1:\d+ does not answer: [^\n]*CERTIFICATE_VERIFY_FAILED[^\n]*\n\Z")

    def test_http_and_keys(self):
        with served() as port:
            for name in CLIENTS:
                file = self.file(QUESTIONS[name])
                status, output, errors = self.run_client(name, "--url", f"http://127.0.0.1:{port}/", "--api-key", KEY, file)
                self.assertEqual((status, errors), (0, ""))
                self.assertIn("That.", output)

    def assert_refused(self, name, reason, *arguments):
        self.assertEqual(self.run_client(name, *arguments), (2, "", f"{name}: {reason}\n"))

    def test_arguments(self):
        empty = pathlib.Path(self.folder, "empty.pem")
        empty.touch()
        for name in CLIENTS:
            file = self.file(QUESTIONS[name])
            for url in ("127.0.0.1:8000", "http://", "ftp://a", "http://a:99999", "http://a/v1", "http://a@b", "http://a..b", "http://[::1", ""):
                self.assert_refused(name, f"--url must be http://HOST[:PORT] or https://HOST[:PORT], got '{url}'", "--url", url, file)
            self.assert_refused(name, "--cert is for an https URL", "--cert", empty, file)
            self.assert_refused(name, "--cert /nowhere: No such file or directory, expected a PEM file",
                                "--url", "https://a", "--cert", "/nowhere", file)
            status, _, errors = self.run_client(name, "--url", "https://a", "--cert", empty, file)
            self.assertEqual(status, 2)
            self.assertRegex(errors, rf"\A{name}: --cert {empty}: [^\n]+, expected a PEM file\n\Z")
            for key in ("a b", "a\nb", "ä"):
                self.assert_refused(name, "--api-key (or $COPPICE_API_KEY) must be ASCII characters without spaces", "--api-key", key, file)

    def test_files(self):
        for name in CLIENTS:
            question = QUESTIONS[name]
            self.assert_refused(name, "/nowhere: No such file or directory, expected a file of JSON lines", "/nowhere")
            path = self.file(b"", b" ")
            self.assert_refused(name, f"{path}: expected a question, the file has none", path)
            for line in (b"{", b"\xff", b"[1]"):
                self.assert_refused(name, f"{path}:3: expected a JSON object", self.file(question, b"", line))
        for name, change, reason in (
                ("ask", dict(prompt=3), 'an object with "prompt", a text'), ("ask", dict(body=[]), 'an object as "body"'),
                ("chat", dict(title=None), 'an object with "title", a text'), ("chat", dict(path=1), 'an object with "path", a text'),
                ("chat", dict(body="x"), 'an object with "body", an object'),
                ("chat", dict(body=dict(messages=[])), '"prompt" in the body, or "messages" whose last has "content"')):
            self.assert_refused(name, f"{path}:2: expected {reason}", self.file(QUESTIONS[name], QUESTIONS[name] | change))


if __name__ == "__main__":
    unittest.main(verbosity=2)
