#!/usr/bin/env python3
"""tree_map.py finds each folder's line, names those without one, and notices a map that is stale."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import tree_map

PROGRAM = pathlib.Path(__file__).resolve().parent / "tree_map.py"
PAGE = f"# Architecture\n\n{tree_map.BEGIN}old\n{tree_map.END}\nMore.\n"


class TreeMap(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = self.folder.name
        self.write("base/README.md", "# base: threads and ids\n\nMore.\n")
        self.write("base/a.h")
        self.write("coordinator/README.md", "# coordinator/: what clients talk to\n\n- `http/`: the server, its sessions\n"
                                            "  and limits. Read it first.\n- `api/`: JSON to requests; pure.\n")
        self.write("coordinator/http/a.h")
        self.write("coordinator/api/a.h")
        self.write("docs/README.md", "# docs: pages\n")
        self.write("docs/architecture.md", PAGE)
        self.write("tests/README.md", "# tests: tests\n")
        self.write("tests/base/a_test.cc")
        self.write("tests/tree/README.md", "# tests/tree: rules of the tree\n")
        self.write("build/release/a.o")
        self.write(".hidden/a")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, text=""):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf8") as file:
            file.write(text)

    def run_program(self, *arguments):
        return subprocess.run([sys.executable, "-B", PROGRAM, self.root, *arguments], capture_output=True, text=True, check=False)

    def test_two_levels_in_order(self):
        lines, problems = tree_map.tree_map(self.root)
        self.assertEqual(problems, [])
        self.assertEqual([line.split(None, 1) for line in lines], [
            ["base/", "threads and ids"], ["coordinator/", "what clients talk to"], ["api/", "JSON to requests"],
            ["http/", "the server, its sessions and limits"], ["docs/", "pages"], ["tests/", "tests"], ["tree/", "rules of the tree"]])
        self.assertTrue(lines[2].startswith("  api/"))

    def test_names_folders_without_a_line(self):
        self.write("model/a.h")
        self.write("base/more/a.h")
        self.write("docs/README.md", "# pages\n")
        self.write("coordinator/README.md", "# coordinator: " + "long " * 30 + "\n- `api/`: JSON.\n- `http/`: HTTP.\n")
        problems = tree_map.tree_map(self.root)[1]
        self.assertEqual([problem.split(":")[0] for problem in problems],
                         ["base/more/", "coordinator/README.md", "docs/README.md", "model/README.md"])
        self.assertEqual(self.run_program().returncode, 1)

    def test_a_stale_map_is_found_and_written(self):
        self.assertIn("stale", self.run_program("--check").stderr)
        self.assertEqual(self.run_program("--write").returncode, 0)
        self.assertEqual(self.run_program("--check").returncode, 0)
        page = pathlib.Path(self.root, "docs/architecture.md").read_text(encoding="utf8")
        self.assertTrue(page.startswith("# Architecture\n\n<!-- map") and page.endswith("<!-- end of the map -->\n\nMore.\n"), page)
        self.assertIn("  api/", page)
        self.write("base/README.md", "# base: threads\n")
        self.assertEqual(self.run_program("--check").returncode, 1)

    def test_a_page_without_marks_is_an_error(self):
        self.write("docs/architecture.md", "# Architecture\n")
        for mode in ("--check", "--write"):
            self.assertIn("marks", self.run_program(mode).stderr)


if __name__ == "__main__":
    unittest.main()
