#!/usr/bin/env python3
"""training/evaluate.py with a cluster that it starts itself: the pair of deploy/demo answers five questions, drafts change no answer and save
passes, and nothing is left behind, also after Ctrl-C or when the cluster does not start."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from cluster import BIN, ROOT, processes_naming
from stopwatch import at_most, wait_until

sys.path.insert(0, str(ROOT / "training"))
from evaluation import tasks  # noqa: E402

QUESTIONS = ROOT / "tests/training/evaluation/questions.jsonl"


class EvaluateTool(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.json = pathlib.Path(self.folder.name) / "run.jsonl"
        # Paths that no other process names.
        self.target, self.draft = (pathlib.Path(self.folder.name) / role for role in ("target", "draft"))
        for folder in (self.target, self.draft):
            folder.symlink_to(ROOT / f"deploy/demo/wikisql-{folder.name}")

    def tearDown(self):
        self.folder.cleanup()

    def start(self, *flags):
        command = [sys.executable, "-B", ROOT / "training/evaluate.py", "wikisql", f"--data={QUESTIONS}", f"--json={self.json}",
                   f"--target={self.target}", f"--draft={self.draft}", *flags]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=dict(os.environ, COPPICE_BIN=str(BIN)))

    def finish(self, process, status):
        output, errors = process.communicate(timeout=at_most(120))
        self.assertEqual(process.returncode, status, output + errors)
        self.assertTrue(wait_until(lambda: not processes_naming(self.folder.name), 10),
                        processes_naming(self.folder.name))
        return output, errors

    def answers(self):
        with open(self.json, encoding="utf8") as lines:
            return [row for row in map(json.loads, lines) if row["kind"] == "answer"]

    def test_five_questions_with_and_without_drafts(self):
        flags = ("--settings=greedy,vote_4,beam_search_4,dsbd_t09,mjsd_01", "--against=greedy")
        output, errors = self.finish(self.start(*flags), 0)
        answers = self.answers()
        self.assertEqual(len(answers), 5 * 8, errors)
        texts = {(row["line"], row["variant"]): row["answer"] for row in answers}
        for line in range(1, 6):
            for name in ("greedy", "vote_4", "beam_search_4"):  # their texts do not depend on drafts
                self.assertEqual(texts[line, name], texts[line, name + "+drafts"], (line, name))
        for row in answers:
            if row["variant"].endswith("+drafts"):
                self.assertGreater(row["drafted"], 0, row)
            else:
                self.assertEqual((row["drafted"], row["layers"]), (0, row["passes"]), row)
            self.assertEqual(row["choices"], 4 if row["variant"].startswith("vote_4") else 1)
            self.assertGreater(row["tokens"], 2)
        total = lambda name, key: sum(row[key] for row in answers if row["variant"] == name)
        for name in ("greedy+drafts", "beam_search_4+drafts", "dsbd_t09+drafts", "mjsd_01+drafts"):
            self.assertGreater(total(name, "layers"), 1.3 * total(name, "passes"), name)
        self.assertGreaterEqual(total("greedy", "correct"), 2)  # of five easy questions
        self.assertIn("right only with greedy", output)
        self.assertEqual(self.finish(self.start(*flags), 0)[0], output)  # all is there: the same table
        self.assertEqual(self.answers(), answers)

    def test_queries_have_their_format_with_and_without_drafts(self):
        output, errors = self.finish(self.start(f"--table={ROOT}/training/evaluation/formats.toml"), 0)
        answers = self.answers()
        self.assertEqual(len(answers), 5 * 16, errors)
        texts = {(row["line"], row["variant"]): row["answer"] for row in answers}
        prompts = {question.line: question.prompt for question in tasks.read_questions(QUESTIONS, "wikisql")}
        for (line, name), text in texts.items():
            if not name.endswith("+drafts"):
                self.assertEqual(text, texts[line, name + "+drafts"], name)
            if "_sql" in name:
                columns = "|".join(map(re.escape, prompts[line].splitlines()[0].removeprefix("columns: ").split(", ")))
                self.assertRegex(text, rf"\A SELECT ((MAX|MIN|COUNT|SUM|AVG) )?({columns})( WHERE ({columns}) [=<>] .+)?\Z", name)

    def test_ctrl_c_leaves_nothing(self):
        process = self.start("--settings=beam_search_4", "--questions=5")
        self.assertTrue(wait_until(lambda: self.json.exists() and self.answers() or process.poll() is not None, 60))
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=at_most(60))
        self.assertIn(process.returncode, (0, 130))  # 0: it was done already
        self.assertNotIn("Traceback", errors)
        self.assertTrue(wait_until(lambda: not processes_naming(self.folder.name), 10))

    def test_a_cluster_that_does_not_start_is_named(self):
        _, errors = self.finish(self.start(f"--target={self.folder.name}/nowhere"), 1)
        self.assertRegex(errors, r"evaluate: the cluster does not start: .*nowhere")
        self.assertFalse(self.json.exists())
        process = subprocess.run([sys.executable, "-B", ROOT / "training/evaluate.py", "wikisql", f"--data={QUESTIONS}"], capture_output=True,
                                 text=True, timeout=at_most(60), env=dict(os.environ, COPPICE_BIN=self.folder.name))
        self.assertEqual(process.returncode, 1)
        self.assertIn("coppice-coordinator does not exist: build it", process.stderr)


if __name__ == "__main__":
    unittest.main()
