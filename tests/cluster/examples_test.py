#!/usr/bin/env python3
"""Runs the examples of docs/api.md 8 as they are written, but for the port. There is one for every endpoint of /openapi.json."""
import json
import re
import subprocess
import unittest

from cluster import ROOT, Cluster
from stopwatch import at_most

EXPECTED_STATUS = {"/admin/drain": 202, "/admin/undrain": 202, "/admin/requests/": 404}  # no request has the id of the example
CHATML = "--chat_template=chatml"


def examples():
    section = (ROOT / "docs/api.md").read_text(encoding="utf8").split("\n## 8. Examples\n")[1].split("\n## ")[0]
    return re.findall(r"^    (curl .*)$", section, re.MULTILINE)


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(coordinator_flags=(CHATML,))
        cls.cluster.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)

    def test_every_example_works(self):
        self.assertGreater(len(examples()), 15)
        for example in examples():
            path = re.search(r"localhost:8000(\S+)", example)[1]
            with self.subTest(example):
                command = example.replace("localhost:8000", f"127.0.0.1:{self.cluster.port}") + " -w '\\n%{http_code}'"
                output = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=at_most(120)).stdout
                body, _, status = output.rpartition("\n")
                wanted = next((s for start, s in EXPECTED_STATUS.items() if path.startswith(start)), 200)
                self.assertEqual(int(status), wanted, body)
                if path == "/metrics":
                    self.assertIn("# TYPE coppice_", body)
                elif '"stream": true' in example:
                    self.assertTrue(body.endswith("data: [DONE]\n\n"), body)
                else:
                    json.loads(body)

    def test_every_endpoint_has_an_example(self):
        paths = json.loads(self.cluster.api.get("/openapi.json")[1])["paths"]
        self.assertGreater(len(paths), 12)
        for path in paths:
            start = re.escape(path.split("{")[0]) + (r"\S+" if "{" in path else r"(\s|$)")
            self.assertTrue(any(re.search(f"localhost:8000{start}", example) for example in examples()), path)


if __name__ == "__main__":
    unittest.main(verbosity=2)
