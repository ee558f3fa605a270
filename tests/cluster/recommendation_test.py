#!/usr/bin/env python3
"""lab/bench/recommendation with a cluster that it starts, on a small synthetic recommender and a peer of the test: with drafts and without,
every answer is the set of items that the reference finds in float64, and the table has all engines. tests/lab/recommendation has the parts."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from cluster import BIN, ROOT, processes_naming
from stopwatch import at_most, wait_until

TOOL = ROOT / "lab/bench/recommendation"
ITEMS = 3000
PEER = '''import pathlib, sys
sys.path.insert(0, "{peers}")
import numpy
from answering import serve


def load(folder, work, kind, threads):
    items = numpy.load(pathlib.Path(work).parent / "items.npy").tolist()

    def generate(prompts, width, tokens, best):
        return [items[:best - 1] + [[0] * tokens] for _ in prompts]

    return "1.0", generate


serve(load)
'''


class Recommendation(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory(prefix="coppice-recommendation-")
        self.folder = pathlib.Path(self.holder.name)
        made = subprocess.run([sys.executable, "-B", TOOL / "make_recommender.py", "--out", self.folder / "data", f"--items={ITEMS}", "--codes=64",
                               "--hidden=128", "--layers=3", "--heads=4", "--ffn=128"], capture_output=True, text=True, timeout=at_most(60))
        self.assertEqual(made.returncode, 0, made.stderr)
        (self.folder / "peer.py").write_text(PEER.format(peers=ROOT / "lab/bench/peers"))
        (self.folder / "peers.toml").write_text('[fake]\nwhat = "no engine"\npackages = []\nprogram = "peer.py"\nbeams = true\n')

    def tearDown(self):
        self.holder.cleanup()

    def test_every_answer_is_the_set_of_the_reference_with_drafts_and_without(self):
        temporary, written = self.folder / "tmp", self.folder / "run.jsonl"
        temporary.mkdir()
        done = subprocess.run([sys.executable, "-B", TOOL / "recommendation.py", f"--data={self.folder / 'data'}", "--widths=5,64", "--prompt-tokens=40",
                               "--clients=1,3", "--turns=2", "--checked=2", "--threads=1", "--free", f"--table={self.folder / 'peers.toml'}",
                               f"--python={sys.executable}", f"--json={written}"], capture_output=True, text=True, timeout=at_most(150),
                              env=dict(os.environ, COPPICE_BIN=str(BIN), TMPDIR=str(temporary)))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(written, encoding="utf8") as lines:
            rows = list(map(json.loads, lines))
        answers, checks = ([row for row in rows if row["kind"] == kind] for kind in ("answer", "check"))
        self.assertEqual(len(answers), 4 * 2 * 2 * 2)
        for row in answers:
            self.assertEqual(row["returned"], row["width"] * row["clients"])
            self.assertEqual(len(row["latencies_s"]), row["clients"])
            if row["engine"] in ("coppice", "coppice+drafts"):
                self.assertEqual(row["illegal"], 0)
            elif row["engine"] == "fake":
                self.assertEqual(row["illegal"], row["clients"])
        # The model does not know the catalogue: without it, most of 64 sequences are no items.
        self.assertGreater(sum(row["illegal"] for row in answers if row["engine"] == "coppice-free"), 0)
        for engine in ("coppice", "coppice+drafts"):
            self.assertEqual([row["same"] for row in checks if row["engine"] == engine], [True] * 4)
        self.assertFalse(any(row["same"] for row in checks if row["engine"] == "fake"))
        self.assertRegex(done.stdout, r"40 +64 +3 +coppice\+drafts ")
        self.assertIn("coppice, 40 tokens: decoding takes ", done.stdout)
        self.assertTrue(wait_until(lambda: not processes_naming(str(self.folder)), 10), processes_naming(str(self.folder)))
        self.assertEqual(list(temporary.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
