#!/usr/bin/env python3
"""Requests with all methods give the recorded tokens, score bits and rounds, with every vector instruction set of this
processor but AVX-512 BF16, which drafts otherwise here and there. A changed answer, request or model is detected.

  answers_test.py COPPICE_ANSWERS
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
RECORDING = pathlib.Path(__file__).resolve().parent / "stories_pair.jsonl"
PROGRAM = ""
EXACT = ("AVX-512", "AVX2")  # best first
# The scalar kernels round after every product. The others fuse product and sum. So scores differ from the fifth digit on, and a
# decision may differ if two beams or tokens are that close.
SCALAR = ("--kernels=scalar", "--score_tolerance=1e-3")
SCALAR_MAY_DIFFER = 0.03  # of the answers
# The draft's weights are bf16, and AVX-512 BF16 rounds the inputs of its products to bf16 (kernels/README.md). So some other forests
# are drafted, and requests whose noise or method follows the forest decide otherwise. The target's weights are f32.
BF16 = ("--kernels=AVX-512 BF16",)
BF16_MAY_DIFFER = 0.1


def run(*arguments):
    return subprocess.run([PROGRAM, "--log_level=warn", *arguments], cwd=ROOT, capture_output=True, text=True)


def compare(recording, *arguments):
    """(exit status, answers that differ, answers compared, output)"""
    result = run(f"--compare={recording}", *arguments)
    output = result.stdout + result.stderr
    counts = re.search(r"^(\d+) of (\d+) answers differ", output, re.MULTILINE)
    return result.returncode, *(map(int, counts.groups()) if counts else (None, None)), output


class Answers(unittest.TestCase):
    def setUp(self):
        self.lines = RECORDING.read_text().splitlines()

    def assert_same(self, *arguments):
        status, differing, compared, output = compare(RECORDING, *arguments)
        print(*arguments, "-", output.strip().splitlines()[-1])
        self.assertEqual((status, differing, compared), (0, 0, len(self.lines) - 1), output)

    def test_best_kernels_give_the_recorded_bits_with_two_threads(self):
        best = next((kernels for kernels in EXACT if self.has(kernels)), None)
        if best:
            self.assert_same(f"--kernels={best}", "--threads=2")
        else:
            self.assert_nearly_same(SCALAR, SCALAR_MAY_DIFFER)

    def has(self, kernels):
        """True if this processor has the instruction set."""
        result = run(f"--kernels={kernels}", f"--compare={RECORDING}", "--only=0")
        if "this processor or this build has no" in result.stderr:
            print(f"not compared: {result.stderr.strip()}")
            return False
        return True

    def test_vector_instruction_sets_give_the_recorded_bits(self):
        for kernels in EXACT:
            if self.has(kernels):
                with self.subTest(kernels):
                    self.assert_same(f"--kernels={kernels}")

    def test_scalar_kernels_give_nearly_the_same_answers(self):
        self.assert_nearly_same(SCALAR, SCALAR_MAY_DIFFER)

    def test_bf16_products_give_nearly_the_same_answers(self):
        if self.has("AVX-512 BF16"):
            self.assert_nearly_same(BF16, BF16_MAY_DIFFER)

    def assert_nearly_same(self, flags, may_differ):
        _, differing, compared, output = compare(RECORDING, *flags)
        print(*flags, "-", output.strip())
        self.assertEqual(compared, len(self.lines) - 1, output)
        self.assertLessEqual(differing, may_differ * compared, output)

    def changed(self, change):
        """Writes a recording of one entry: the first answered request that has a draft, after `change`. Returns its path."""
        entries = map(json.loads, self.lines[1:])
        entry = next(e for e in entries if "forest_width" in e["request"] and "hypotheses" in e["answer"])
        change(entry)
        file = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
        self.addCleanup(file.close)
        file.write(self.lines[0] + "\n" + json.dumps(entry) + "\n")
        file.flush()
        return file.name

    def test_a_changed_answer_is_named(self):
        def change_token(entry):
            entry["answer"]["hypotheses"][0]["tokens"][-1] ^= 1

        def change_last_bit(entry):
            hypothesis = entry["answer"]["hypotheses"][0]
            hypothesis["score"] = (float.fromhex(hypothesis["score"]) * (1 + 2**-52)).hex()

        def change_rounds(entry):
            entry["answer"]["layers"][-1] += 1

        kernels = ("--kernels=AVX2",) if self.has("AVX2") else SCALAR
        for change, field in ((change_token, "hypotheses[0].tokens["), (change_last_bit, "hypotheses[0].score"),
                              (change_rounds, "layers[")):
            if kernels == SCALAR and change is change_last_bit:
                continue
            with self.subTest(field):
                status, differing, _, output = compare(self.changed(change), *kernels)
                self.assertEqual((status, differing), (1, 1), output)
                self.assertIn(field, output)

    def test_what_cannot_be_compared_is_an_error(self):
        def add_field(entry):
            entry["request"]["no_such_field"] = 1

        for arguments, reason in (((self.changed(add_field),), "unknown fields"),
                                  ((RECORDING, "--target=tests/models/stories260k-draft"), "fingerprint"),
                                  ((RECORDING, "--kernels=abacus"), "abacus")):
            with self.subTest(reason):
                status, _, _, output = compare(*arguments)
                self.assertEqual(status, 2, output)
                self.assertIn(reason, output)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
