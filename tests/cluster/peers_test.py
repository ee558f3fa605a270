#!/usr/bin/env python3
"""lab/bench/peers/compare.py and load.py with a cluster that they start and peers of the test: the table has all of them, a peer that cannot
be had is named, and nothing is left behind, also after SIGTERM or when the cluster does not start. tests/lab/peers has the parts."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

from cluster import BIN, DRAFT, ROOT, TARGET, processes_naming
from stopwatch import at_most, wait_until

TOOL = ROOT / "lab/bench/peers/compare.py"
LOAD = ROOT / "lab/bench/peers/load.py"
PEERS = ROOT / "tests/lab/peers/fake_peers.toml"


class PeersTool(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.holder.name)
        self.json, self.bin = self.folder / "run.jsonl", self.folder / "bin"
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.model = self.folder / "target"  # a path that no other process names
        self.model.symlink_to(TARGET)
        # A Python that has every package but one: the peers of the test need none.
        self.bin.mkdir()
        self.python = self.bin / "python"
        self.python.write_text(f'#!/bin/sh\ncase "$*" in *no-such-package*) echo "PackageNotFoundError: no-such-package" >&2; exit 1 ;; esac\n'
                               f'[ "$1" = -c ] && exit 0\nexec {sys.executable} "$@"\n')
        self.python.chmod(0o755)

    def tearDown(self):
        self.holder.cleanup()

    def start(self, *flags):
        return self.start_tool(TOOL, "--turns=2", "--tokens=6", "--works=1x1,1x3,3x2", *flags)

    def start_tool(self, tool, *flags):
        command = [sys.executable, "-B", tool, f"--model={self.model}", f"--table={PEERS}", f"--python={self.python}", f"--json={self.json}",
                   "--threads=1", "--prompt-tokens=12", *flags]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=dict(os.environ, COPPICE_BIN=str(BIN), TMPDIR=str(self.temporary)))

    def finish(self, process, status):
        output, errors = process.communicate(timeout=at_most(150))
        self.assertEqual(process.returncode, status, output + errors)
        self.assertTrue(wait_until(lambda: not processes_naming(str(self.folder)), 10), processes_naming(str(self.folder)))
        self.assertEqual([path for path in self.temporary.iterdir() if "coppice" in path.name], [])
        return output, errors

    def answers(self):
        with open(self.json, encoding="utf8") as lines:
            return [row for row in map(json.loads, lines) if row["kind"] == "answer"]

    def test_engines_take_turns_and_each_has_its_columns(self):
        output, errors = self.finish(self.start("--types=f32,int8", f"--draft={DRAFT}"), 0)
        rows = self.answers()
        works = {"coppice": 3, "coppice+drafts": 3, "fake": 3, "greedy_fake": 2}
        for engine, count in works.items():
            mine = [row for row in rows if row["engine"] == engine]
            self.assertEqual(len(mine), count * 2 * 2, engine)
            for row in mine:
                self.assertEqual([len(text) for text in row["ids"]], [6] * int(row["work"][-1]))
        texts = {(row["type"], row["work"], row["turn"], row["engine"]): row["ids"] for row in rows}
        for (kind, work, turn, engine), ids in texts.items():
            if engine == "coppice+drafts":
                self.assertEqual(ids, texts[kind, work, turn, "coppice"])
        head = output.splitlines()[0]
        self.assertLess(head.index("coppice, tokens/s"), head.index("greedy_fake, tokens/s"))
        self.assertRegex(output, r"f32 +beam search, W = 3, 2 requests .* - +- +-")
        self.assertIn("absent: missing: ", output)
        self.assertIn("fake and coppice differ in turn 1, prompt 1, from token", output)
        self.assertNotIn("came from a cache", errors)
        report = subprocess.run([sys.executable, "-B", TOOL, "--report", self.json], capture_output=True, text=True, timeout=at_most(60))
        self.assertEqual((report.returncode, report.stdout), (0, output))

    def test_a_signal_leaves_nothing(self):
        process = self.start("--types=f32", "--turns=1000")
        self.assertTrue(wait_until(lambda: self.json.exists() and '"answer"' in self.json.read_text(), 120))
        process.send_signal(signal.SIGTERM)
        _, errors = self.finish(process, 128 + signal.SIGTERM)
        self.assertNotIn("Traceback", errors)

    def test_a_cluster_that_does_not_start_is_named(self):
        self.model.unlink()
        _, errors = self.finish(self.start("--types=f32"), 1)
        self.assertRegex(errors, r"compare: coppice: the cluster does not start: .*target")

    def test_a_load_is_swept_over_clients_widths_and_drafts(self):
        plot = self.folder / "load.svg"
        output, _ = self.finish(self.start_tool(LOAD, "--type=f32", f"--draft={DRAFT}", "--clients=1,3", "--widths=1,3", "--peer-clients=1,4",
                                                "--tokens=12", "--minutes=0.1", f"--svg={plot}"), 0)
        with open(self.json, encoding="utf8") as lines:
            points = {(row["engine"], row["drafts"], row["width"], row["clients"]): row for row in map(json.loads, lines) if row["kind"] == "point"}
        self.assertEqual(set(points), {("coppice", drafts, width, clients) for drafts in ("none", "auto") for width in (1, 3) for clients in (1, 3)}
                         | {("fake", "none", 1, clients) for clients in (1, 4)})
        for row in points.values():
            self.assertGreater(row["tokens_per_s"], 0)
            self.assertGreater(row["whole_answers"], 0)
            self.assertGreater(row["first_token_ms"]["p99"], 0)
        ratio = points["fake", "none", 1, 4]["tokens_per_s"] / points["fake", "none", 1, 1]["tokens_per_s"]
        self.assertTrue(2 < ratio < 8, ratio)  # a step takes as long for four as for one
        self.assertIn("absent: missing: ", output)
        self.assertEqual(plot.read_text().count("<circle"), 2 * len(points) + 3)  # and a legend
        report = subprocess.run([sys.executable, "-B", LOAD, "--report", self.json], capture_output=True, text=True, timeout=at_most(60))
        self.assertEqual((report.returncode, report.stdout), (0, output))


if __name__ == "__main__":
    unittest.main()
