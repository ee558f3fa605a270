#!/usr/bin/env python3
"""The programs give the same answers with a converted folder as with the folder of the same model that was written directly: the tokens
of prompts and hypotheses, and the bits of scores.

  served_test.py COPPICE_ANSWERS
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from gguf_writer import ROOT
from gguf_models import DEMO, DIGITS, convert, demo_gguf, quantised_llama, tokenizer_json

ANSWERS = ""


class Served(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def answers(self, target, draft):
        """Requests with random methods and parameters, and what the pair answers, as lines of JSON."""
        out = self.folder / f"{pathlib.Path(target).name}.jsonl"
        result = subprocess.run([ANSWERS, "--log_level=warn", f"--target={target}", f"--draft={draft}", "--requests=60", "--seed=3",
                                 f"--out={out}"], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = out.read_text().splitlines()[1:]
        self.assertEqual(len(lines), 60)
        self.assertGreater(sum("hypotheses" in json.loads(line)["answer"] for line in lines), 20)
        return lines

    def test_the_demo_target(self):
        converted, draft = self.folder / "converted", ROOT / "tests/models/stories260k-draft"
        file = demo_gguf(self.folder / "demo.gguf")
        convert(file, converted, "--dtype=f32")
        wanted = self.answers(DEMO, draft)
        self.assertEqual(self.answers(converted, draft), wanted)
        self.assertEqual(self.answers(file, draft), wanted)  # without conversion

    def test_a_model_in_every_quantisation(self):
        direct, converted = self.folder / "direct", self.folder / "converted"
        convert(quantised_llama(self.folder / "model.gguf", direct), converted, "--dtype=f32")
        (direct / "tokenizer.json").write_text(json.dumps(tokenizer_json(DIGITS)), encoding="utf8")
        self.assertEqual(self.answers(converted, converted), self.answers(direct, direct))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    ANSWERS = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
