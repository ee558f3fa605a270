#!/usr/bin/env python3
"""`training/train_pair.py invent`: what it asks, which answers are rows, and that it goes on after an interruption."""
import argparse
import contextlib
import http.server
import io
import json
import pathlib
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "training"), str(ROOT / "deploy/models")]
import train_pair  # noqa: E402
from evaluation.server import ServerError  # noqa: E402
from pair_training import data, inventing  # noqa: E402

ROWS = [(f"columns: city {n}, name\nquestion: {word} of {n}?\nsql:", f" SELECT name WHERE city = {n}")
        for n, word in enumerate(("Who", "What", "When", "Which", "Where"))]
OPTIONS = dict(target="model", copy_case=r"= (\S+)", seed=3, vary=False, each=3, rows=20, temperature=0.5, parallel=4, timeout=9, progress=0.001)


def choice(text, finish="stop"):
    return {"text": text, "finish_reason": finish}


class FakeServer:
    """Answers as a function of the request, later requests sooner. `fails_at`: this request fails."""

    def __init__(self, fails_at=None):
        self.fails_at, self.asked, self.lock = fails_at, [], threading.Lock()

    def fetch(self, path, body):
        with self.lock:
            self.asked.append((path, body))
        number = body["seed"] - OPTIONS["seed"] * inventing.MEANS
        time.sleep(0.001 * (number % 4 == 0))
        if number == self.fails_at:
            raise ServerError("gone")
        return {"choices": [choice(f" Which {number}?\nsql: SELECT {number}"), choice(f" And {number}?\nsql: SELECT 1\nsql: 2"),
                            choice(f" Which {number % 2}, again?\nsql: SELECT {number}")]}


class WithFolder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.out = self.folder / "out.jsonl"

    def written(self, rows):
        path = self.folder / "rows.jsonl"
        path.write_text("".join(json.dumps({"prompt": prompt, "completion": completion}) + "\n" for prompt, completion in rows))
        return str(path)


class Invent(WithFolder):
    def inventor(self, server, of=None, said=None, **options):
        arguments = dict(OPTIONS, data=self.written(of or ROWS), out=str(self.out)) | options
        return inventing.Inventor(server, argparse.Namespace(**arguments), (said if said is not None else []).append)

    def test_a_row_is_a_finished_text_with_a_prompt_s_end_and_a_completion(self):
        self.assertEqual(inventing.row_of("h\nq:", choice(" a?\nsql: b"), "\nsql:"), {"prompt": "h\nq: a?\nsql:", "completion": " b"})
        self.assertEqual(inventing.row_of("h\nq:", choice(" a?\nsql: b\nsql: c"), "\nsql:")["completion"], " b\nsql: c")
        for text, finish in ((" a?\nsql: b", "length"), (" a? b", "stop"), (" a?\nsql: ", "stop"), ("  \nsql: b", "stop"), ("", "stop")):
            self.assertIsNone(inventing.row_of("h\nq:", choice(text, finish), "\nsql:"), text)

    def test_what_rows_share_by_chance_is_no_end_of_prompts(self):
        for words in (("Who", "Where"), ("Who is it?", "Where is it?"), ("A", "B?")):
            self.assertEqual(inventing.ends_of_prompts([(f"h {n}\nquestion: {word}\nsql:", "c") for n, word in enumerate(words)], "file"), ("question:", "\nsql:"))

    def test_asks_for_what_follows_the_beginnings_of_rows(self):
        server = FakeServer()
        self.inventor(server, rows=40).run()  # ten requests and more, those that the end cancels left out
        self.assertEqual({path for path, _ in server.asked}, {"/v1/completions"})
        bodies = sorted((body for _, body in server.asked), key=lambda body: body["seed"])
        self.assertEqual([body["seed"] for body in bodies], [OPTIONS["seed"] * inventing.MEANS + n for n in range(len(bodies))])
        heads = [body["prompt"] for body in bodies]
        wanted = sorted(f"columns: city {n}, name\nquestion:" for n in range(5))
        self.assertEqual([sorted(heads[:5]), sorted(heads[5:10])], [wanted] * 2)
        self.assertNotEqual(heads[:5], heads[5:10])
        self.assertEqual({(body["n"], body["temperature"], body["speculative"]) for body in bodies}, {(3, 0.5, False)})

    def test_varies_the_lists(self):
        server = FakeServer()
        self.inventor(server, [(prompt.replace("name", "name, year, team, place"), completion) for prompt, completion in ROWS], vary=True, rows=60).run()
        lists = [body["prompt"].partition("\n")[0] for _, body in server.asked]
        self.assertGreater(len(set(lists)), 8)
        self.assertTrue(all("name" in items for items in lists))

    def test_writes_each_prompt_once_in_the_order_of_requests(self):
        self.inventor(FakeServer()).run()
        rows = data.read_rows(str(self.out))
        heads = [prompt.partition("\nquestion:")[0] for prompt, _ in rows]
        self.assertGreaterEqual(len(rows), 20)
        self.assertEqual(len({prompt for prompt, _ in rows}), len(rows))
        numbers = [int(completion.removeprefix(" SELECT ")) for prompt, completion in rows if "Which" in prompt and "again" not in prompt]
        self.assertEqual(numbers, list(range(len(numbers))))
        self.assertEqual([completion for prompt, completion in rows if "And 2?" in prompt], [" SELECT 1\nsql: 2"])
        self.assertEqual(len(set(heads)), 5)
        self.assertFalse(pathlib.Path(str(self.out) + ".partial").exists())

    def test_what_the_data_has_already_is_left_out(self):
        rows = ROWS + [(f"columns: city {n}, name\nquestion: And {request}?\nsql:", " x") for n in range(5) for request in range(50)]
        self.inventor(FakeServer(), rows).run()
        self.assertFalse([prompt for prompt, _ in data.read_rows(str(self.out)) if "And" in prompt])

    def test_goes_on_as_if_nothing_had_happened(self):
        self.inventor(FakeServer()).run()
        whole = self.out.read_text()
        self.out.unlink()
        with self.assertRaises(ServerError):
            self.inventor(FakeServer(fails_at=5)).run()
        self.assertFalse(self.out.exists())
        partial = pathlib.Path(str(self.out) + ".partial")
        partial.write_text(partial.read_text() + '{"prompt": "half a li')
        server, said = FakeServer(), []
        self.inventor(server, said=said).run()
        self.assertEqual(self.out.read_text(), whole)
        self.assertEqual(min(body["seed"] for _, body in server.asked) - OPTIONS["seed"] * inventing.MEANS, 4)
        self.assertRegex(said[0], r"out.jsonl: \d+ rows are there already")

    def test_does_not_go_on_with_other_options(self):
        with self.assertRaises(ServerError):
            self.inventor(FakeServer(fails_at=5)).run()
        with self.assertRaisesRegex(data.DataError, "partial: was begun with other options; remove it to start anew"):
            self.inventor(FakeServer(), temperature=0.6).run()

    def test_a_target_that_writes_no_rows_is_given_up(self):
        class Rambling(FakeServer):
            def fetch(self, path, body):
                return {"choices": [choice("and so on", "length")]}

        with self.assertRaisesRegex(data.DataError, f"model: wrote no row in {inventing.HOPELESS} requests"):
            self.inventor(Rambling()).run()

    def test_data_that_has_no_such_prompts_is_refused(self):
        for rows, reason in (([("a\nb", "c"), ("a\nd", "c")], "no end in common"), ([("a sql:", "c"), ("b sql:", "c")], "have one line")):
            with self.subTest(reason), self.assertRaisesRegex(data.DataError, reason):
                self.inventor(FakeServer(), rows).run()


class Refusing(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        text = b'{"error": {"code": "busy", "message": "not now"}}'
        self.send_response(503)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class Command(WithFolder):
    def run_tool(self, *arguments):
        errors, output, status = io.StringIO(), io.StringIO(), 0
        command = ["train_pair.py", "invent", "--data", self.written(ROWS), "--target", "model", "--out", str(self.out), *arguments]
        with unittest.mock.patch.object(sys, "argv", command), contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output):
            try:
                train_pair.main()
            except SystemExit as end:
                status = end.code
        return status, errors.getvalue(), output.getvalue()

    def test_a_server_that_refuses_is_told(self):
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
            status, errors, _ = self.run_tool("--url", f"http://127.0.0.1:{server.server_address[1]}")
            server.shutdown()
        self.assertEqual((status, errors), (1, "train_pair: /v1/completions: 503 busy: not now\n"))

    def test_rows_that_are_there_stay(self):
        self.out.write_text("rows\n")
        status, errors, output = self.run_tool()
        self.assertEqual((status, errors), (0, ""))
        self.assertIn(f"{self.out}: is there already", output)
        self.assertEqual(self.out.read_text(), "rows\n")


if __name__ == "__main__":
    unittest.main()
