#!/usr/bin/env python3
"""A coordinator without nodes: what its process holds when bodies come and go, how many files it needs, and what it says it serves."""
import pathlib
import re
import resource
import socket
import subprocess
import tempfile
import unittest

from cluster import BIN, TARGET, wait_until
from tls_test import make_certificate

HEAD = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n"
BODY = b" " * (4 << 20)


class Coordinator:
    """The program, until the end of a with statement. files: the limit of its open files."""

    def __init__(self, *flags, files=None):
        limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))) if files else None
        self.process = subprocess.Popen([BIN / "coppice-coordinator", f"--model={TARGET}", "--listen=127.0.0.1:0",
                                         "--control_listen=tcp://127.0.0.1:*", *flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=limit)
        self.log = []
        while not self.log or "serving" not in self.log[-1]:
            self.log.append(self.process.stdout.readline())
            if not self.log[-1]:
                raise AssertionError(self.log)
        self.scheme, port = re.search(r"serving (https?)://127.0.0.1:(\d+)", self.log[-1]).groups()
        self.port = int(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def resident_mib(self):
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())[1]) / 1024

    def is_healthy(self):
        with self.connect() as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            return client.recv(4096).startswith(b"HTTP/1.1 200")


class CoordinatorLimits(unittest.TestCase):
    def test_bodies_are_bounded_and_their_memory_goes_back(self):
        with Coordinator() as coordinator:
            start = coordinator.resident_mib()
            clients = []
            for _ in range(150):
                clients.append(coordinator.connect())
                try:
                    clients[-1].sendall(HEAD.format(len(BODY)).encode() + BODY[:-1])
                except OSError:
                    pass  # refused
                self.assertLess(coordinator.resident_mib(), start + 340)
            self.assertTrue(coordinator.is_healthy())
            for client in clients:
                client.close()
            self.assertTrue(wait_until(lambda: coordinator.resident_mib() < start + 40))

    def test_idle_connections_leave_room_when_files_are_few(self):
        with Coordinator(files=300) as coordinator:
            self.assertIn("may open 300 files", "".join(coordinator.log))
            clients = [coordinator.connect() for _ in range(600)]
            self.assertTrue(coordinator.is_healthy())
            for client in clients:
                client.close()

    def test_the_log_says_https(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = make_certificate(folder, "limits")
            with Coordinator(f"--tls_cert_file={cert}", f"--tls_key_file={key}") as coordinator:
                self.assertEqual(coordinator.scheme, "https")
        with Coordinator() as coordinator:
            self.assertEqual(coordinator.scheme, "http")


if __name__ == "__main__":
    unittest.main()
