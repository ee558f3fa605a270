#!/usr/bin/env python3
"""A model in a GGUF file is served as the folder it was made of: the same tokens and scores, in float32, with a draft in a file too, on
two ranks, with the tokenizer of the file. A file that cannot be served is refused in one line."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

from api_client import outcome
from cluster import BIN, ROOT, Cluster
from stopwatch import at_most

sys.path.insert(0, str(ROOT / "tests/deploy/gguf"))
from gguf_models import demo_gguf  # noqa: E402

BODIES = [
    dict(prompt="Once upon a time, there was a", max_tokens=24, temperature=0, return_token_ids=True),
    dict(prompt="The little dog", decoding="beam_search", beam_width=4, n=4, max_tokens=16, return_token_ids=True),
    dict(prompt="Lily and Ben", max_tokens=16, seed=5, n=2, return_token_ids=True),
]


class Gguf(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.file = pathlib.Path(temporary.name, "Stories.F32.gguf")

    def answers(self, **options):
        with Cluster(**options) as cluster:
            answers = cluster.api.complete_all(BODIES)
            return [outcome(answer) for answer in answers], answers[0]["model"]

    def test_answers_are_those_of_the_folder(self):
        demo_gguf(self.file)
        for tp in (1, 2):
            wanted, _ = self.answers(tp=tp)
            found, name = self.answers(target=self.file, draft=self.file, tp=tp)
            self.assertEqual(found, wanted, tp)
            self.assertEqual(name, "Stories.F32")

    def test_a_file_that_cannot_be_served_is_refused_in_one_line(self):
        demo_gguf(self.file, lambda metadata, _: metadata.update({"llama.expert_count": (4, 8)}))
        for program, *flags in (("worker", "--coordinator=tcp://127.0.0.1:1"), ("draft", "--coordinator=tcp://127.0.0.1:1"), ("coordinator",)):
            result = subprocess.run([pathlib.Path(BIN, f"coppice-{program}"), f"--model={self.file}", *flags], capture_output=True, text=True,
                                    timeout=at_most(60))
            self.assertNotEqual(result.returncode, 0, program)
            lines = [line for line in (result.stdout + result.stderr).splitlines() if "expert" in line]
            self.assertEqual(len(lines), 1, result.stdout + result.stderr)
            self.assertIn(f"{self.file}: key llama.expert_used_count: missing", lines[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
