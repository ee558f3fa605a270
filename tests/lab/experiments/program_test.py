#!/usr/bin/env python3
"""coppice-lab and plot_lab.py as programs: a run that writes JSON, a plot of it, equal figures for equal seeds, and the messages
for bad arguments.

  program_test.py COPPICE-LAB PLOT_LAB.PY
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "cluster"))
from stopwatch import at_most  # noqa: E402

LAB, PLOT = (os.path.abspath(path) for path in sys.argv[1:3])
TABLES = ["--source=zipf", "--vocabulary=32", "--sequences=6", "--tokens=12"]


def lab(*flags):
    return subprocess.run([LAB, *flags], capture_output=True, text=True, timeout=at_most(60))


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.report = os.path.join(self.folder.name, "report.json")

    def tearDown(self):
        self.folder.cleanup()

    def run_json(self, *flags):
        result = lab(*TABLES, f"--json={self.report}", *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.report, encoding="utf8") as file:
            return json.load(file), result

    def test_the_same_seed_gives_the_same_figures(self):
        flags = ("--methods=gumbel_coupling,dsbd", "--widths=2")
        first, result = self.run_json(*flags)
        second, _ = self.run_json(*flags)
        other, _ = self.run_json(*flags, "--seed=2")
        for report in (first, second, other):
            for cell in report["cells"]:
                del cell["seconds"]
        self.assertEqual(first["cells"], second["cells"])
        self.assertNotEqual(first["cells"], other["cells"])
        self.assertIn("layers/pass", result.stdout)
        self.assertIn("[1/", result.stderr)

    def test_list_names_experiments_and_methods(self):
        result = lab("--list")
        self.assertEqual(result.returncode, 0)
        for name in ("optimal_table1", "mjsd_figure3", "dsbd_figure9", "gumbel_coupling"):
            self.assertIn(name, result.stdout)

    def test_bad_arguments_are_named(self):
        for flags, reason in ((["--source=tables"], "--source: must be random, zipf, hashlm or pair, got 'tables'"),
                              (["--experiment=table1"], "--experiment: unknown 'table1'"),
                              (["--source=zipf", "--methods=beam"], "unknown method 'beam'"),
                              (["--source=zipf", "--widths=two"], "--widths: 'two'"),
                              (["--source=zipf", "--sequences=0"], "--sequences: must be at least 1, got 0"),
                              (["--source=zipf", "--json=/nowhere/at/all.json"], "--json: cannot write"),
                              (["--target=/nowhere"], "/nowhere"),
                              (["--source=zipf", "--bogus"], "bogus")):
            result = lab(*flags)
            self.assertNotEqual(result.returncode, 0, flags)
            self.assertIn(reason, result.stderr)

    def plot(self, *arguments):
        return subprocess.run([sys.executable, PLOT, *arguments], capture_output=True, text=True, timeout=at_most(60))

    def test_plots_or_says_what_it_needs(self):
        self.run_json("--experiment=nodes", "--samplings=T=0.5,T=1", "--nodes=12", "--repeats=2", "--drafts=2")
        out = os.path.join(self.folder.name, "plot.svg")
        result = self.plot("temperature", self.report, out)
        if "matplotlib" in result.stderr:
            self.assertIn("python3-matplotlib", result.stderr)
            self.assertEqual(result.returncode, 1)
        else:
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(out, encoding="utf8") as file:
                self.assertIn("<svg", file.read())
            self.assertIn("has no 'beam'; it has", self.plot("temperature", self.report, out, "beam").stderr)

    def test_plot_refuses_what_is_no_report(self):
        with open(self.report, "w", encoding="utf8") as file:
            file.write("[]")
        self.assertIn("is no report", self.plot("drafts", self.report, "plot.svg").stderr)
        self.assertIn(".png or .svg", self.plot("drafts", self.report, "plot.pdf").stderr)
        self.assertIn("expected a plot", self.plot("pie", self.report, "plot.svg").stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
