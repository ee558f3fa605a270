#!/usr/bin/env python3
"""HTTPS: completions and streams over TLS by curl and by Python, disconnects, a certificate that is replaced while the coordinator
runs, and bad certificates, which end the start with one line."""
import http.client
import json
import pathlib
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest

from cluster import BIN, TARGET, Cluster, free_port
from stopwatch import at_most, wait_until

PROMPT = "Once upon a time, there was"


def make_certificate(folder, name, key_of=None):
    """Writes NAME.pem and NAME.key, valid for 127.0.0.1. Returns their paths."""
    cert, key = pathlib.Path(folder, f"{name}.pem"), pathlib.Path(folder, f"{name}.key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
                   check=True, capture_output=True)
    return cert, key


def cancelled(api):
    """Requests whose client went away, by the server's count."""
    return sum(float(line.split()[-1]) for line in api.get("/metrics")[1].splitlines() if line.startswith("coppice_cancelled_requests_total{"))


class TlsCluster(Cluster):
    """Its client speaks TLS and trusts the certificate."""

    def __init__(self, cert, key, **arguments):
        super().__init__(coordinator_flags=(f"--tls_cert_file={cert}", f"--tls_key_file={key}"), **arguments)
        self.cert = cert
        self.api.connect = self.connect

    def connect(self):
        context = ssl.create_default_context(cafile=str(self.cert))
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=self.api.timeout_s, context=context)


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.cert, cls.key = make_certificate(cls.folder.name, "first")
        cls.cluster = TlsCluster(cls.cert, cls.key)
        cls.cluster.__enter__()
        cls.api = cls.cluster.api

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)
        cls.folder.cleanup()

    def test_curl_and_python_get_the_same_answer(self):
        body = dict(prompt=PROMPT, max_tokens=8, temperature=0)
        answer = self.api.complete(body)
        output = subprocess.run(["curl", "-sS", "--cacert", str(self.cert), f"https://127.0.0.1:{self.cluster.port}/v1/completions",
                                 "-H", "Content-Type: application/json", "-d", json.dumps(body)], check=True, capture_output=True).stdout
        self.assertEqual(json.loads(output)["choices"][0]["text"], answer["choices"][0]["text"])
        events = self.api.stream(body)
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual("".join(c["text"] for e in events[:-1] for c in e["choices"]), answer["choices"][0]["text"])

    def test_two_requests_on_one_connection(self):
        connection = self.cluster.connect()
        for _ in range(2):
            connection.request("GET", "/health")
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.read()), (200, b'{"status":"ok"}'))
        connection.close()

    def test_large_bodies_and_many_clients(self):
        ids = [5] * 20000  # longer than a TLS record; too long for the model
        status, answer = self.api.post(dict(prompt=ids))
        self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))
        bodies = [dict(prompt=PROMPT, max_tokens=6, seed=i) for i in range(16)]
        self.assertEqual(len(self.api.complete_all(bodies)), 16)

    def test_a_disconnect_cancels(self):
        before = cancelled(self.api)
        opened = [self.api.open_stream(dict(prompt=PROMPT, n=64, max_tokens=300, ignore_eos=True)) for _ in range(8)]  # seconds of work
        opened[0][1].readline()
        for connection, response in opened:
            connection.sock.close()
            response.close()
            connection.close()
        self.assertTrue(wait_until(lambda: self.api.cluster()["requests"]["running"] == 0, 20))
        self.assertGreater(cancelled(self.api), before)

    def test_old_protocols_and_plain_http_get_nothing(self):
        with socket.create_connection(("127.0.0.1", self.cluster.port), timeout=at_most(15)) as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertNotIn(b"200 OK", plain.recv(1000))
        for version in ("-tls1", "-tls1_1"):
            result = subprocess.run(["openssl", "s_client", version, "-connect", f"127.0.0.1:{self.cluster.port}"],
                                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=at_most(30))
            self.assertNotIn("BEGIN CERTIFICATE", result.stdout)
        self.assertEqual(self.api.get("/health")[0], 200)


class Certificates(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def test_sighup_replaces_the_certificate_and_keeps_the_old_one_after_an_error(self):
        cert, key = make_certificate(self.folder.name, "first")
        other_cert, other_key = make_certificate(self.folder.name, "second")

        def subject():
            pem = ssl.get_server_certificate(("127.0.0.1", port))
            return subprocess.run(["openssl", "x509", "-noout", "-subject"], input=pem, text=True, check=True,
                                  capture_output=True).stdout

        port = free_port()
        process = subprocess.Popen([BIN / "coppice-coordinator", f"--listen=127.0.0.1:{port}", f"--model={TARGET}",
                                    f"--control_listen=tcp://127.0.0.1:{free_port()}", f"--tls_cert_file={cert}",
                                    f"--tls_key_file={key}"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            def answers():
                try:
                    return "first" in subject()
                except OSError:
                    return False
            self.assertTrue(wait_until(answers))
            cert.write_bytes(other_cert.read_bytes())
            process.send_signal(signal.SIGHUP)  # the key does not belong to the certificate
            time.sleep(0.5)
            self.assertIn("first", subject())
            key.write_bytes(other_key.read_bytes())
            process.send_signal(signal.SIGHUP)
            self.assertTrue(wait_until(lambda: "second" in subject()))
        finally:
            process.terminate()
            self.assertEqual(process.wait(30), 0)

    def test_bad_files_end_the_start(self):
        cert, key = make_certificate(self.folder.name, "first")
        _, other_key = make_certificate(self.folder.name, "second")
        empty = pathlib.Path(self.folder.name, "empty.pem")
        empty.write_text("")
        for flags, words in (((f"--tls_cert_file={cert}",), "--tls_key_file: TLS needs both"),
                             ((f"--tls_cert_file={empty}", f"--tls_key_file={key}"), f"{empty}: no certificate"),
                             ((f"--tls_cert_file={cert}", "--tls_key_file=/none"), "/none: cannot be opened"),
                             ((f"--tls_cert_file={cert}", f"--tls_key_file={other_key}"), f"{other_key}: ")):
            with self.subTest(flags):
                result = subprocess.run([BIN / "coppice-coordinator", "--listen=127.0.0.1:0", f"--model={TARGET}", *flags],
                                        capture_output=True, text=True, timeout=at_most(30))
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(words, result.stderr)
                self.assertEqual(len([l for l in result.stderr.splitlines() if l.startswith("coppice-coordinator: ")]), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
