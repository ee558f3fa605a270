#!/usr/bin/env python3
"""lab/bench/peers/load.py: prompts, the closed loop of a peer's process, figures of a point, falls, the plot and quantised weights, without
network and without an engine. tests/cluster/peers_test.py runs it with a cluster."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
import xml.dom.minidom

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "lab/bench/peers"), str(HERE), str(ROOT / "training")]
import numpy  # noqa: E402
import answering  # noqa: E402
import load  # noqa: E402
import load_figures  # noqa: E402
import load_plot  # noqa: E402
import quantised  # noqa: E402
from workload import WorkloadError  # noqa: E402


def point(engine, clients, rate, drafts="none", width=1, first=0.1, whole=99):
    times = {"p50": 1000 * first, "p95": 2000 * first, "p99": 3000 * first}
    return {"kind": "point", "engine": engine, "drafts": drafts, "width": width, "clients": clients, "tokens_per_s": rate, "whole_answers": whole, "seconds": 12.3,
            "first_token_ms": times, "between_ms": dict(times, p99=None)}


class Arguments(unittest.TestCase):
    def test_quick_changes_what_is_not_given(self):
        whole, quick = load.parse_arguments(["--model=m"]), load.parse_arguments(["--model=m", "--quick", "--clients=2,1"])
        self.assertEqual((whole.minutes, whole.clients, whole.peer_clients, whole.widths), (25, [1, 2, 4, 8, 16, 32, 64], [1, 4, 16, 64], [1, 4]))
        self.assertEqual((quick.minutes, quick.clients, quick.peer_clients), (5, [1, 2], [1, 64]))
        for wrong in (["--model=m", "--clients=0"], ["--model=m", "--widths=1,a"], [], ["--model=m", "--report=r"]):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
                load.parse_arguments(wrong)
            self.assertEqual(ended.exception.code, 2)

    def test_points_share_the_time_that_is_left(self):
        sweep = load.Sweep(load.parse_arguments(["--model=m"]), "int8", None, None, "")
        points = [load.Point(None, "none", width, 64) for width in (1, 4, 1)]  # weights 2, 5, 2
        sweep.ends_at = load.time.monotonic() + 2 * load.LOADING_S + 3 * load.BETWEEN_POINTS_S + 90
        self.assertAlmostEqual(sweep.seconds(points[0], points[1:], 2), 20, places=1)
        self.assertAlmostEqual(sweep.seconds(points[1], [points[0], points[2]], 2), 50, places=1)
        sweep.ends_at = load.time.monotonic() - 5
        self.assertEqual(sweep.seconds(points[0], [], 1), load.SHORTEST_S)


class Reports(unittest.TestCase):
    def test_runs_of_two_types_and_files_without_points_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder, name) for name in ("a", "b", "c")]
            for path, kind, points in zip(paths, ("int8", "bf16", "int8"), ([point("coppice", 1, 10)], [point("coppice", 1, 20)], [])):
                run = {"kind": "run", "format_version": load.table.FORMAT_VERSION, "type": kind}
                path.write_text("".join(json.dumps(row) + "\n" for row in (run, *points)))
            self.assertEqual(len(load.read_runs([paths[0], paths[2]])), 3)
            with self.assertRaisesRegex(WorkloadError, "runs of bf16 and int8 have tables of their own"):
                load.read_runs(paths[:2])
            with self.assertRaisesRegex(WorkloadError, "c: no points"):
                load.read_runs(paths[2:])


class Prompts(unittest.TestCase):
    def test_all_are_equally_long_and_begin_differently(self):
        source = load.Prompts(list(range(300)), [7], 16, 32)
        prompts, lengths = source.take(500)
        more, _ = source.take(500)
        self.assertEqual({len(ids) for ids in prompts + more}, {16})
        self.assertEqual({ids[0] for ids in prompts}, {7})
        self.assertEqual(len({tuple(ids[1:3]) for ids in prompts + more}), 1000)
        self.assertEqual((min(lengths), max(lengths)), (16, 48))
        for ids in prompts:
            self.assertEqual(ids[3:], list(range(ids[3], ids[3] + 13)))

    def test_they_do_not_end(self):
        self.assertEqual(len(load.Prompts(list(range(101)), [], 8, 4).take(20000)[0]), 20000)

    def test_a_short_text_is_refused(self):
        for ids, length in ((list(range(99)), 8), (list(range(200)), 300), (list(range(200)), 3)):
            with self.assertRaisesRegex(WorkloadError, "are no source of prompts"):
                load.Prompts(ids, [1], length, 4)


class ScriptedBatch:
    """A step has a token for each request and takes `step_s` of a clock that the test moves."""

    def __init__(self, clock, step_s):
        self.clock, self.step_s, self.running, self.count, self.most, self.cleared = clock, step_s, {}, 0, 0, False

    def add(self, prompt, tokens):
        self.count += 1
        self.running[self.count] = tokens
        self.most = max(self.most, len(self.running))
        return self.count

    def step(self):
        self.clock.now += self.step_s
        came = [(name, 1, left == 1) for name, left in self.running.items()]
        self.running = {name: left - 1 for name, left in self.running.items() if left > 1}
        return came

    def clear(self):
        self.cleared = True


class ClosedLoop(unittest.TestCase):
    def setUp(self):
        self.time, answering.time, self.now = answering.time, self, 100.0

    def tearDown(self):
        answering.time = self.time

    def perf_counter(self):
        return self.now

    def test_each_client_sends_when_its_last_answer_has_ended(self):
        batch = ScriptedBatch(self, 0.5)
        requests = answering.closed_loop(batch, clients=2, seconds=4, prompts=[[1], [2], [3]], lengths=[2, 4, 2])
        self.assertEqual([r["sent_s"] for r in requests], [0, 0, 1, 2, 2, 3])
        self.assertEqual([r["times_s"] for r in requests], [[0.5, 1], [0.5, 1, 1.5, 2], [1.5, 2], [2.5, 3], [2.5, 3, 3.5, 4], [3.5, 4]])
        self.assertEqual((batch.most, batch.cleared), (2, True))


class FakePeer:
    name = "fake"

    def ask(self, what, **fields):
        return {"requests": [{"sent_s": 0, "times_s": [1, 2]}, {"sent_s": 0, "times_s": [1, 2]}, {"sent_s": 2, "times_s": [3, 4]}]}


class Figures(unittest.TestCase):
    def test_percentiles_are_interpolated_and_in_milliseconds(self):
        self.assertEqual(load_figures.percentiles([0.3, 0.1, 0.2]), {"p50": 200, "p95": 290, "p99": 298})
        self.assertEqual(load_figures.percentiles([]), {"p50": None, "p95": None, "p99": None})

    def test_only_the_counted_time_counts(self):
        requests = [{"sent_s": 0, "times_s": [1, 2, 3, 4], "tokens": 4}, {"sent_s": 2.5, "times_s": [3, 5, 7], "tokens": 3},
                    {"sent_s": 7.5, "times_s": [8, 9], "tokens": None}, {"sent_s": 9, "times_s": [], "tokens": None}]
        found = load_figures.point_figures(requests, 2, 8)
        self.assertEqual(found["tokens_per_s"], 1.17)  # 7 events in 6 s
        self.assertEqual(found["first_token_ms"]["p50"], 500)
        self.assertEqual(found["between_ms"]["p50"], 1000)  # 1, 1, 1, 2, 2
        self.assertEqual(found["whole_answers"], 2)

    def test_an_event_counts_as_many_tokens_as_it_has_in_the_mean(self):
        requests = [{"sent_s": 0, "times_s": [1, 2], "tokens": 6}, {"sent_s": 0, "times_s": [1, 2, 3, 4], "tokens": 6}, {"sent_s": 0, "times_s": [3], "tokens": None}]
        found = load_figures.point_figures(requests, 0, 4)
        self.assertEqual((found["tokens_per_event"], found["tokens_per_s"]), (2, 3.5))

    def test_only_whole_answers_of_a_load_generator_have_tokens(self):
        result = {"start_times": [0.5, 1, 2], "ttfts": [0.25, 0.5, None], "itls": [[1, 2], [1], []], "output_lens": [12, 2, 0],
                  "errors": ["", "still running when the run ended", "still running when the run ended"]}
        self.assertEqual(load.requests_of(result), [{"sent_s": 0.5, "times_s": [0.75, 1.75, 3.75], "tokens": 12},
                                                    {"sent_s": 1, "times_s": [1.5, 2.5], "tokens": None}, {"sent_s": 2, "times_s": [], "tokens": None}])
        self.assertEqual(load_figures.point_figures(load.requests_of(result), 0, 4)["tokens_per_s"], 5)  # 5 events of 4

    def test_only_whole_answers_of_a_peer_have_tokens(self):
        requests = load.ask_peer(load.Point(FakePeer(), "none", 1, 2), 5, [[1], [2]], [2, 3])
        self.assertEqual([request["tokens"] for request in requests], [2, None, 2])

    def test_falls_are_named_and_only_they(self):
        rows = [point("coppice", 4, 300), point("coppice", 1, 100), point("coppice", 8, 280), point("coppice", 16, 295), point("coppice", 32, 310),
                point("coppice", 2, 200, "auto"),
                point("coppice", 1, 250, "auto"), point("other", 1, 500)]
        self.assertEqual(load_figures.falls(rows), ["FALLS: coppice, width 1: 280 tokens/s with 8 clients, 300 with 4 (-7%)",
                                                    "FALLS: coppice, width 1: 295 tokens/s with 16 clients, 300 with 4 (-2%)",
                                                    "FALLS: coppice, drafts, width 1: 200 tokens/s with 2 clients, 250 with 1 (-20%)"])
        self.assertEqual(load_figures.notes(rows[:2]), ["the total rate never falls as clients are added"])

    def test_a_point_without_whole_answers_says_nothing_of_the_rate(self):
        rows = [point("coppice", 1, 100), point("coppice", 64, 3, width=1, whole=63), point("coppice", 8, 120, whole=8)]
        self.assertEqual(load_figures.notes(rows), ["the total rate never falls as clients are added",
                                                    "TOO SHORT: coppice, width 1: 63 whole answers of 64 clients in 12 s; give it more --minutes"])

    def test_rows_stand_in_the_order_of_engines_and_clients(self):
        rows = [point("other", 8, 10), point("coppice", 8, 20, "auto"), point("coppice", 2, 20, width=4), point("coppice", 1, 20)]
        self.assertEqual([row[:5] for row in load_figures.lines(rows)[1:]],
                         [["coppice", "none", "1", "1", "20.0"], ["coppice", "none", "4", "2", "20.0"], ["coppice", "auto", "1", "8", "20.0"],
                          ["other", "none", "1", "8", "10.0"]])
        self.assertEqual(load_figures.lines(rows)[1][5:], ["100", "200", "300", "100", "200", "-", "99"])


class Plot(unittest.TestCase):
    def test_each_series_has_a_curve_in_both_rows_and_nothing_leaves_the_page(self):
        rows = [point("coppice", c, 10 * c, drafts, width) for c in (1, 8, 64) for drafts in ("none", "auto") for width in (1, 4)]
        svg = xml.dom.minidom.parseString(load_plot.draw(rows + [point("a<b", 4, 900)]))
        curves = [path for path in svg.getElementsByTagName("path") if path.getAttribute("fill") == "none"]
        self.assertEqual(len(curves), 2 * 5)
        self.assertEqual(sum(bool(path.getAttribute("stroke-dasharray")) for path in curves), 2 * 2)
        across, down = (float(svg.documentElement.getAttribute(name)) for name in ("width", "height"))
        for dot in svg.getElementsByTagName("circle"):
            self.assertTrue(0 < float(dot.getAttribute("cx")) < across and 0 < float(dot.getAttribute("cy")) < down)
        self.assertIn("a<b", [text.firstChild.data for text in svg.getElementsByTagName("text")])

    def test_steps_are_round_and_reach_the_highest(self):
        self.assertEqual([load_plot.steps(value) for value in (0.9, 700, 2300)], [[0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0],
                                                                                  [0, 200, 400, 600, 800], [0, 500, 1000, 1500, 2000, 2500]])

    def test_one_number_of_clients_is_drawn_too(self):
        xml.dom.minidom.parseString(load_plot.draw([point("coppice", 8, 10)]))


class Quantised(unittest.TestCase):
    def test_values_are_those_of_the_formats(self):
        draw = numpy.random.default_rng(1)
        weight = draw.normal(size=(3, 64)).astype(numpy.float32)
        weight[1, :32] = 0
        bits, scales = quantised.quantised(weight, 8)
        self.assertEqual((bits.shape, bits.dtype, scales.shape), ((3, 2, 32), numpy.uint8, (3, 2)))
        again = (bits.astype(numpy.float32) - 128) * scales[..., None]
        self.assertLessEqual(numpy.abs(again.reshape(3, 64) - weight).max(), scales.max() / 2 * 1.001)
        bits, scales = quantised.quantised(weight, 4)
        self.assertEqual(bits.shape, (3, 2, 16))
        values = numpy.stack([bits & 15, bits >> 4], axis=-1).reshape(3, 2, 32)
        again = (values.astype(numpy.float32) - 8) * scales[..., None]
        error = numpy.abs(again.reshape(3, 64) - weight).reshape(3, 2, 32)
        self.assertTrue((error <= numpy.abs(scales)[..., None] * 1.001).all())
        self.assertEqual(numpy.abs(again[1, 0]).max(), 0)
        largest = numpy.abs(weight.reshape(3, 2, 32)).argmax(axis=2)
        for row in range(3):
            self.assertAlmostEqual(again[row, 1, largest[row, 1]], weight[row, 32 + largest[row, 1]], places=5)  # the largest is exact


if __name__ == "__main__":
    unittest.main()
