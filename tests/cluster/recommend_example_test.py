#!/usr/bin/env python3
"""Optional: the example lab/bench/recommendation/recommend.py, as its lines of use say. Needs the packages openai and numpy."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from cluster import BIN, ROOT, Cluster
from stopwatch import at_most

TOOL = ROOT / "lab/bench/recommendation"
HISTORY = ["B0000007", "B0001234", "B0002999"]


class Example(unittest.TestCase):
    def run_program(self, *command):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=at_most(60))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_history_becomes_ten_items_with_names_and_scores(self):
        with tempfile.TemporaryDirectory(prefix="coppice-recommend-") as folder:
            data = pathlib.Path(folder)
            self.run_program(sys.executable, "-B", TOOL / "make_recommender.py", "--out", data, "--items=3000", "--codes=64", "--hidden=128",
                             "--layers=3", "--heads=4", "--ffn=128")
            self.run_program(BIN / "coppice-catalogue", "compile", f"--items={data / 'items.jsonl'}", f"--model={data / 'target'}",
                             f"--output={data / 'items.cat'}")
            flag = f"--catalogues=items={data / 'items.cat'}"
            with Cluster(target=data / "target", draft=data / "draft", drafts=1, coordinator_flags=[flag], worker_flags=[flag],
                         draft_flags=[flag]) as cluster:
                lines = self.run_program(sys.executable, "-B", TOOL / "recommend.py", data / "items.jsonl", *HISTORY,
                                         f"--url=http://127.0.0.1:{cluster.port}/v1").splitlines()
            self.assertEqual([line.split()[:2] for line in lines[:3]], [["has", item] for item in HISTORY])
            names = {}
            for number, line in enumerate((data / "items.jsonl").read_text().splitlines(), 1):
                names[f"B{number:07d}"] = re.search(r'"name": "([^"]+)"', line)[1]
            found = [re.fullmatch(r" *(-\d+\.\d{3}) (B\d{7}) (.+)", line).groups() for line in lines[3:]]
            self.assertEqual(len({item for _, item, _ in found} - set(HISTORY)), 10)
            self.assertEqual([name for _, _, name in found], [names[item] for _, item, _ in found])
            scores = [float(score) for score, _, _ in found]
            self.assertEqual(scores, sorted(scores, reverse=True))


if __name__ == "__main__":
    unittest.main()
