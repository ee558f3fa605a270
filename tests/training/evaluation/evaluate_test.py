#!/usr/bin/env python3
"""training/evaluate.py: whole runs against a server that answers at once. tests/cluster/evaluate_tool_test.py runs it with a real
cluster."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "training"), str(HERE), str(ROOT / "tests/cluster")]
from evaluation import records, report  # noqa: E402
from fake_server import FakeServer  # noqa: E402
from stopwatch import at_most  # noqa: E402

QUESTIONS = HERE / "questions.jsonl"
BLEU_COUNTS = [[6, 4, 2, 1, 7, 6, 5, 4, 7, 7], [7, 3, 0, 0, 8, 7, 6, 5, 8, 9]]  # of two answers, as sacrebleu counts


class WholeRuns(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.json = pathlib.Path(self.folder.name) / "run.jsonl"

    def tearDown(self):
        self.folder.cleanup()

    def command(self, server, *flags, task="wikisql"):
        return [sys.executable, "-B", ROOT / "training/evaluate.py", task, f"--url={server.url}", f"--data={QUESTIONS}", "--questions=5",
                f"--json={self.json}", *flags]

    def run_tool(self, server, *flags, status=0, task="wikisql"):
        result = subprocess.run(self.command(server, *flags, task=task), capture_output=True, text=True, timeout=at_most(120))
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def answers(self):
        rows, _ = records.read_records(self.json)
        return [row for row in rows if row["kind"] == "answer"]

    def test_scores_speeds_and_a_table(self):
        with FakeServer() as server:
            result = self.run_tool(server, "--settings=greedy,vote_4", "--against=greedy")
        answers = self.answers()
        self.assertEqual(len(answers), 5 * 4)
        self.assertEqual({row["line"] for row in answers if row["correct"]}, {1})
        table = {line.split()[0]: line for line in result.stdout.split("\n\n")[0].splitlines()}
        self.assertIn("right only with greedy", result.stdout.split("\n\n")[1])
        self.assertIn("20.0 % [3.6, 62.4]", table["vote_4"])
        self.assertIn("1.00 [1.00, 1.00]", table["greedy"])
        self.assertIn("2.00 [2.00, 2.00]", table["vote_4+drafts"])
        self.assertIn("J per question", result.stdout)
        self.assertIn("question 5 of 5", result.stderr)

    def test_a_proxy_is_not_asked_for_this_host(self):
        with FakeServer() as server, unittest.mock.patch.dict(os.environ, http_proxy="http://127.0.0.1:9", no_proxy=""):
            self.run_tool(server, "--settings=greedy", "--variants=plain")

    def test_drafts_have_a_speed_against_the_same_setting_without(self):
        with FakeServer() as server:
            result = self.run_tool(server, "--settings=greedy,dsbd_4", "--variants=plain,drafted,auto")
        self.assertIn("speed", result.stdout.splitlines()[0])
        rows, _ = records.read_records(self.json)
        seconds = {"greedy": 0.3, "greedy+drafts": 0.2, "greedy+auto": 0.1}
        for row in rows:
            if row["kind"] == "answer":
                row["seconds"] = seconds.get(row["variant"], 1.0)
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in report.lines(rows, markdown=True)]
        at = cells[0].index("speed")
        self.assertEqual({row[0]: row[at] for row in cells[2:]}, {  # dsbd_4 has no answers without drafts
            "`greedy`": "", "`greedy+drafts`": "1.50 [1.50, 1.50]", "`greedy+auto`": "3.00 [3.00, 3.00]", "`dsbd_4+drafts`": "", "`dsbd_4+auto`": ""})
        self.assertEqual(len({len(row) for row in cells}), 1)
        plain = [row for row in rows if "+" not in row.get("variant", "")]
        self.assertNotIn("speed", report.lines(plain)[0])

    def test_every_variant_gets_the_same_questions_and_seeds(self):
        with FakeServer() as server:
            self.run_tool(server, "--settings=greedy,sample", "--variants=plain,drafted,auto", "--seed=7", "--max-tokens=9")
            bodies = [body for _, body in server.bodies]
        self.assertEqual({(b["seed"] - 7) % 1000 for b in bodies}, {0})
        self.assertEqual({b["max_tokens"] for b in bodies}, {9})
        self.assertEqual(len({(b["prompt"], b["seed"]) for b in bodies}), 5)
        self.assertEqual(len({row["variant"] for row in self.answers()}), 6)

    def test_an_interrupted_run_goes_on(self):
        flags = ("--settings=greedy,sample",)
        refuse = lambda number, _: (503, {"error": {"code": "draining", "message": "bye"}}) if number > 14 else None
        with FakeServer(before=refuse) as server:
            result = self.run_tool(server, *flags, status=1)
        self.assertRegex(result.stderr, r"line \d, \w+(\+drafts)?: /v1/completions: 503 draining: bye")
        self.assertIn("goes on from", result.stderr)
        before = self.answers()
        self.assertEqual(len(before), 14 - 4 - 2)  # 4 to warm up, 1 before each of two questions
        with open(self.json, "ab") as file:
            file.write(b'{"kind": "answer", "li')  # the process was killed while it wrote
        with FakeServer() as server:
            self.run_tool(server, *flags)
            asked = len(server.bodies)
        after = self.answers()
        self.assertEqual(after[:len(before)], before)
        self.assertEqual(len({(row["line"], row["variant"]) for row in after}), 20)
        self.assertEqual(len(after), 20)
        self.assertEqual(asked, 12 + 4 + 3)
        with FakeServer() as server:
            self.run_tool(server, *flags)
            self.assertEqual(server.bodies, [])

    def test_another_run_in_the_same_file_is_refused(self):
        with FakeServer() as server:
            self.run_tool(server, "--settings=greedy", "--questions=2")
            for flags, reason in ((("--seed=2",), "seed 1, now it is 2"), (("--max-tokens=5",), "max_tokens 64, now it is 5")):
                self.assertIn(reason, self.run_tool(server, "--settings=greedy", *flags, status=2).stderr)
            self.run_tool(server, "--settings=greedy,sample", "--questions=3")
            self.assertEqual(len(self.answers()), 3 * 4)
        self.json.write_text(self.json.read_text() + "[]\n" + self.json.read_text())
        with FakeServer() as server:
            self.assertRegex(self.run_tool(server, status=2).stderr, r"run.jsonl:15: is no record")

    def test_a_table_of_translations(self):
        with FakeServer() as server:
            self.run_tool(server, "--settings=greedy,vote_4")
        rows, _ = records.read_records(self.json)
        for i, row in enumerate(rows):
            if row["kind"] == "run":
                row["task"] = "translation"
            else:
                del row["correct"]
                row["bleu_counts"] = BLEU_COUNTS[i % 2]
        self.json.write_text("".join(json.dumps(row) + "\n" for row in rows))
        tool = [sys.executable, "-B", ROOT / "training/evaluate.py", "report", f"--json={self.json}"]
        table = subprocess.run(tool, capture_output=True, text=True, timeout=at_most(60)).stdout.splitlines()
        self.assertEqual(table[0].split()[:2], ["setting", "BLEU"])
        self.assertRegex(table[1], r"greedy +\d\d\.\d \[\d")
        against = subprocess.run([*tool, "--against=greedy"], capture_output=True, text=True, timeout=at_most(60)).stdout.split("\n\n")[1]
        self.assertIn("BLEU minus that of greedy", against)
        self.assertRegex(against, r"vote_4 +-?\d+\.\d \[-?\d")

    def test_prompts_are_scored_by_likelihood_also_in_chats(self):
        data = pathlib.Path(self.folder.name) / "prompts.jsonl"
        data.write_text('{"turns": ["one", "two"], "category": "writing"}\n{"prompt": "three", "category": "math"}\n')
        for chat in ((), ("--chat",)):
            self.json.unlink(missing_ok=True)
            with FakeServer() as server:
                result = self.run_tool(server, f"--data={data}", "--settings=sample,vote_4,beam_search_8", "--variants=plain", "--by-category",
                                       *chat, task="prompts")
                path, body = server.bodies[0]
                self.assertEqual([b["n"] for _, b in server.bodies[:3]], [1, 4, 8])
            self.assertIn("-0.500 [-0.500, -0.500]", result.stdout)
            self.assertIn("\nwriting\n", result.stdout)
            self.assertEqual({row["distinct"] for row in self.answers()}, {1, 2})
            self.assertEqual(path, "/v1/chat/completions" if chat else "/v1/completions")
            self.assertEqual("messages" in body, bool(chat))

    def test_one_table_has_a_row_for_each_category(self):
        data = pathlib.Path(self.folder.name) / "prompts.jsonl"
        data.write_text("".join(f'{{"prompt": "{i}", "category": "{"math" if i else "writing"}"}}\n' for i in range(3)))
        with FakeServer() as server:
            result = self.run_tool(server, f"--data={data}", "--settings=greedy,beam_search_8", "--category-table", task="prompts")
        rows, _ = records.read_records(self.json)
        for row in rows:
            if row["kind"] == "answer":
                math_row = row["category"] == "math"
                row.update(log_likelihood=-2.0 if math_row else -1.0, seconds=0.1, tokens=4 if math_row else 2)
        head, *lines = report.category_lines(rows, markdown=True)
        self.assertEqual(head.count("log-likelihood per token"), 4)
        self.assertEqual((head.count("distinct"), head.count("block efficiency")), (2, 2))  # beams have several answers, drafts layers
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]
        self.assertEqual([row[:4] for row in cells], [["math", "2", "-2.000", "40"], ["writing", "1", "-1.000", "20"], ["all", "3", "-1.667", "40"]])
        self.assertEqual(len({len(row) for row in cells}), 1)
        self.assertIn("\nwriting", result.stdout)

    def test_questions_that_do_not_fit_are_left_out(self):
        with FakeServer(tokens=250) as server:
            result = self.run_tool(server, "--settings=greedy", "--questions=2")
            self.assertEqual(server.bodies, [])
        self.assertEqual(result.stderr.count("is left out: 250 tokens and 64 more"), 2)
        self.assertEqual(result.stdout, "")

    def test_parallel_requests_share_the_time_of_their_block(self):
        both = threading.Barrier(2)
        def meet(number, _):
            if number > 4:
                both.wait(at_most(30))
                time.sleep(1)  # much longer than two threads take to start
        with FakeServer(before=meet) as server:  # after 2 to warm up and 2 to fill the cache, requests come in pairs
            self.run_tool(server, "--settings=greedy", "--questions=2", "--parallel=2")
        by_variant = {}
        for row in self.answers():
            by_variant.setdefault(row["variant"], []).append(row)
        for rows in by_variant.values():
            self.assertEqual(len(rows), 2)
            self.assertEqual(rows[0]["seconds"], rows[1]["seconds"])
            self.assertLessEqual(rows[0]["seconds"], max(row["latency"] for row in rows))

    def test_ctrl_c_ends_it_and_keeps_what_is_done(self):
        reached, go = threading.Event(), threading.Event()
        def block(number, _):
            if number == 6:
                reached.set()
                go.wait(at_most(60))
        with FakeServer(before=block) as server:
            process = subprocess.Popen(self.command(server, "--settings=greedy"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertTrue(reached.wait(at_most(60)))
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=at_most(120))
            go.set()
        self.assertEqual(process.returncode, 130)
        self.assertNotIn("Traceback", errors)
        self.assertEqual(len(self.answers()), 2)

    def test_wrong_arguments_are_named(self):
        with FakeServer() as server:
            url = server.url
            for flags, status, reason in ((("--variants=plain,fast",), 2, "unknown 'fast'"), (("--settings=beam",), 2, "no setting is called beam"),
                                          (("--data=/nowhere.jsonl",), 2, "/nowhere.jsonl: No such file"), (("--questions=0",), 2, "expected 1 or more"),
                                          (("--table=/nowhere.toml",), 2, "/nowhere.toml: No such file"),
                                          (("--json=/nowhere/run.jsonl",), 2, "/nowhere/run.jsonl: No such file"),
                                          (("--settings=greedy", "--against=vote_4"), 2, "vote_4 has no answers to compare")):
                self.assertIn(reason, self.run_tool(server, *flags, status=status).stderr)
        server.url = url  # nothing listens there now
        self.assertIn("does not answer", self.run_tool(server, status=1).stderr)

    def test_a_report_is_the_table_of_the_run_and_plots_or_says_what_it_needs(self):
        out = pathlib.Path(self.folder.name) / "plot.svg"
        tool = [sys.executable, "-B", ROOT / "training/evaluate.py", "report", f"--json={self.json}"]
        with FakeServer() as server:
            table = self.run_tool(server, "--settings=greedy,vote_4").stdout
        result = subprocess.run(tool, capture_output=True, text=True, timeout=at_most(120))
        self.assertEqual((result.returncode, result.stdout), (0, table))
        plotted = subprocess.run([*tool, f"--plot={out}"], capture_output=True, text=True, timeout=at_most(120))
        if "matplotlib" in plotted.stderr:
            self.assertIn("python3-matplotlib", plotted.stderr)
            self.assertEqual(plotted.returncode, 2)
        else:
            self.assertEqual(plotted.returncode, 0, plotted.stderr)
            self.assertIn("hollow: without drafts", out.read_text())
            self.assertIn("4 samples and a vote", out.read_text())
            one = subprocess.run([*tool, f"--overview={out}"], capture_output=True, text=True, timeout=at_most(120))
            self.assertEqual(one.returncode, 0, one.stderr)
            self.assertIn("median time of a question", out.read_text())
        some = subprocess.run([*tool, "--settings=vote_4"], capture_output=True, text=True, timeout=at_most(120))
        self.assertEqual([line.split()[0] for line in some.stdout.splitlines()], ["setting", "vote_4", "vote_4+drafts"])
        unknown = subprocess.run([*tool, "--settings=vote_5"], capture_output=True, text=True, timeout=at_most(120))
        self.assertIn("called vote_5; there are greedy, vote_4", unknown.stderr)
        wrong = subprocess.run([*tool, "--plot=plot.pdf"], capture_output=True, text=True, timeout=at_most(120))
        self.assertIn(".svg or .png", wrong.stderr)
        self.json.unlink()
        self.assertIn("No such file", subprocess.run(tool, capture_output=True, text=True, timeout=at_most(120)).stderr)

    def test_warnings_name_variants_without_drafts(self):
        with FakeServer() as server:
            self.run_tool(server, "--settings=greedy")
        rows, _ = records.read_records(self.json)
        self.assertEqual(report.warnings(rows), [])
        for row in rows:
            if row["kind"] == "answer":
                row["drafted"] = 0
        self.assertRegex(report.warnings(rows)[0], r"greedy\+drafts: no draft reached it")


if __name__ == "__main__":
    unittest.main()
