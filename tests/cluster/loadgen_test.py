#!/usr/bin/env python3
"""coppice-loadgen against a whole cluster that speaks TLS and wants a key: certificates and keys, exact lengths by /tokenize, chats
of several turns, a trace, cancellation, and the figures of the result."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from cluster import BIN
from stopwatch import at_most, wait_until
from model_folders import with_chat_template
from tls_test import TlsCluster, cancelled, make_certificate

KEY = "a-key-of-the-test-0"
TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message.content + '\\n' }}{% endfor %}"
CHAT = "--endpoint=/v1/chat/completions"


class Loadgen(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.keys = cls.path / "keys"
        cls.keys.write_text(f"# keys of users\n{KEY} tester\n")
        cls.cert, key = make_certificate(cls.folder.name, "server")
        cls.cluster = TlsCluster(cls.cert, key, target=with_chat_template(f"{cls.folder.name}/target", TEMPLATE))
        cls.cluster.flags["coordinator"] += (f"--api_keys_file={cls.keys}",)
        cls.cluster.__enter__()
        cls.url = f"https://127.0.0.1:{cls.cluster.port}"

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)
        cls.folder.cleanup()

    def run_loadgen(self, *flags, environment=None, url=None):
        variables = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
        variables.update(environment or {})
        return subprocess.run([BIN / "coppice-loadgen", f"--base-url={url or self.url}", *map(str, flags)], capture_output=True,
                              text=True, env=variables, timeout=at_most(120))

    def result(self, *flags):
        """The JSON of a run that must succeed."""
        done = self.run_loadgen("--insecure", "--save-result", "--save-detailed", f"--result-dir={self.path}",
                                "--result-filename=result.json", "--max-send-lag=60000", *flags, environment=dict(OPENAI_API_KEY=KEY))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.table = done.stdout
        return json.loads((self.path / "result.json").read_text(encoding="utf8"))

    def write(self, name, text):
        path = self.path / name
        path.write_text(text)
        return path

    def test_key_and_certificate_are_needed(self):
        done = self.run_loadgen("--insecure")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("/v1/models: status 401", done.stderr)
        done = self.run_loadgen(f"--api-key-file={self.keys}")
        self.assertEqual(done.returncode, 1)
        self.assertIn("certificate verify failed", done.stderr)
        few = ("--num-prompts=2", "--input-len=4", "--output-len=4", f"--api-key-file={self.keys}")
        done = self.run_loadgen(*few, environment=dict(SSL_CERT_FILE=str(self.cert)))
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.run_loadgen(*few, environment=dict(SSL_CERT_FILE=str(self.cert)), url=f"https://localhost:{self.cluster.port}")
        self.assertEqual(done.returncode, 1)  # the certificate is for 127.0.0.1
        done = self.run_loadgen("--insecure", "--header", f"Authorization=Bearer {KEY}", *few[:3])
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_figures_of_a_closed_loop(self):
        result = self.result("--num-prompts=6", "--input-len=5", "--output-len=8", "--max-concurrency=2", "--goodput", "e2el:600000",
                             "--metadata", "place=here", "--request-id-prefix=loadgen-test-")
        self.assertEqual((result["completed"], result["failed"], result["valid"]), (6, 0, True))
        self.assertEqual(result["input_lens"], [5] * 6)
        self.assertEqual(result["total_output_tokens"], 48)
        self.assertEqual(result["token_count_source"], "usage")
        self.assertGreaterEqual(result["block_efficiency"], 1)
        self.assertEqual(result["spec_decode_source"], "usage")
        self.assertEqual((result["good_share"], result["place"]), (1, "here"))
        self.assertTrue(result["server_version"])
        self.assertNotIn(KEY, json.dumps(result))
        for row in ("Successful requests:", "Request goodput (req/s):", "Mean TTFT (ms):", "Layers per target pass:", "CPU (%):"):
            self.assertIn(row, self.table)

    def test_text_has_the_exact_length(self):
        result = self.result("--num-prompts=4", "--input-len=33", "--output-len=2", "--prompt-form=text")
        self.assertEqual(result["input_lens"], [33] * 4)
        result = self.result(CHAT, "--num-prompts=4", "--input-len=40", "--output-len=2")
        self.assertEqual(result["input_lens"], [40] * 4)

    def test_a_ramp_over_two_servers(self):
        result = self.result(f"--base-url=https://localhost:{self.cluster.port}", "--num-prompts=8", "--input-len=4", "--output-len=2",
                             "--ramp-up-strategy=exponential", "--ramp-up-start-rps=20", "--ramp-up-end-rps=80")
        self.assertEqual([place["completed"] for place in result["endpoints"]], [4, 4])
        self.assertIsNotNone(result["send_lag_ms"])

    def test_every_turn_of_a_question(self):
        rows = [dict(question_id=i, category="c", turns=[f"What is {i}?", "And twice that?"]) for i in range(2)]
        path = self.write("question.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        result = self.result(CHAT, "--dataset-name=spec_bench", f"--dataset-path={path}", "--turns=all", "--output-len=4",
                             "--save-texts")
        self.assertEqual((result["num_prompts"], result["completed"]), (4, 4))
        self.assertGreater(result["input_lens"][1], result["input_lens"][0])
        self.assertEqual(len(result["generated_texts"]), 4)

    def test_a_trace(self):
        path = self.write("trace.csv", "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                          "5,m,6,3,9,API log\n6,m,100000,3,100003,API log\n7,m,0,0,0,API log\n8,m,7,2,9,API log\n90,m,7,2,9,API log\n")
        result = self.result("--dataset-name=burstgpt", f"--dataset-path={path}", "--trace-speed=10", "--trace-window=0,30")
        self.assertEqual((result["completed"], result["dropped_rows"], result["empty_rows"]), (2, 1, 1))
        self.assertEqual((result["input_lens"], result["output_lens"]), ([6, 7], [3, 2]))
        self.assertGreaterEqual(result["start_times"][1], 0.3)

    def test_cancelled_requests_end_at_the_server_too(self):
        before = cancelled(self.cluster.api)
        result = self.result("--num-prompts=16", "--input-len=4", "--output-len=200", "--n=64", "--request-cancellation-rate=100",
                             "--request-cancellation-delay=1")  # much more than a second of work
        self.assertEqual((result["cancelled"], result["completed"], result["failed"]), (16, 0, 0))
        self.assertTrue(wait_until(lambda: self.cluster.api.cluster()["requests"]["running"] == 0, 30))
        self.assertGreater(cancelled(self.cluster.api), before)


if __name__ == "__main__":
    unittest.main()
