#!/usr/bin/env python3
"""tree_rules.py prints the rules and measures the graph of includes: floors, arrows upwards, circles."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import tree_graph

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = {"base": (), "proto": ("base/",), "comm": ("base/", re.compile(r"proto/\w+\.pb\.h")), "worker": ("base/", "comm/channel.h"),
         "lab": (re.compile(r"(?!tests/).*"),)}


def allowed(folder, header):
    return header.startswith(folder + "/") or any(header.startswith(rule) if isinstance(rule, str) else rule.fullmatch(header)
                                                  for rule in RULES[folder])


class TreeGraph(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = self.folder.name
        for path, includes in {"base/a.h": (), "proto/a.h": ("base/a.h",), "comm/channel.h": ("base/a.h", "proto/a.pb.h"),
                               "worker/a.cc": ("comm/channel.h", "worker/b.h", "absl/a.h"), "lab/a.cc": ("worker/a.h",),
                               "worker/a.h": (), "tests/a.cc": ("lab/a.h",), "lab/a.h": ()}.items():
            self.write(path, includes)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, includes):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf8") as file:
            file.write("".join(f'#include "{name}"\n' for name in includes))

    def measures(self):
        return tree_graph.measures(self.root, RULES, ("tests",), allowed)

    def test_floors_without_generated_headers(self):
        self.assertEqual(self.measures(), ["folders with sources: 6", "floors: 5", "  5: tests", "  4: lab", "  3: worker",
                                           "  2: proto, comm", "  1: base", "arrows: 5, upwards: 0", "circles: 0"])

    def test_a_forbidden_include_is_an_arrow_upwards(self):
        self.write("base/b.cc", ("worker/a.h",))
        self.write("comm/channel.h", ())
        lines = self.measures()
        self.assertIn("arrows: 5, upwards: 1", lines)
        self.assertIn("  base -> worker: base/b.cc: worker/a.h", lines)
        self.assertIn("circles: 0", lines)

    def test_a_circle_is_named(self):
        self.write("base/b.cc", ("worker/a.h",))
        lines = self.measures()
        self.assertIn("circles: 1", lines)
        self.assertIn("  base, comm, worker", lines)
        self.assertIn("arrows: 6, upwards: 3", lines)

    def test_the_rules_in_words(self):
        self.assertEqual([line.split(None, 1)[1] for line in tree_graph.print_rules(RULES, ("tests",))], [
            "nothing of the tree", "base/", "base/, proto/*.pb.h", "base/, comm/channel.h", "everything but tests/", "everything"])

    def test_the_options_of_the_program(self):
        for option, word in (("--print", "everything but tests/"), ("--measures", "circles: 0")):
            result = subprocess.run([sys.executable, "-B", ROOT / "tests/tree/tree_rules.py", ROOT, option], capture_output=True,
                                    text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(word, result.stdout)


if __name__ == "__main__":
    unittest.main()
