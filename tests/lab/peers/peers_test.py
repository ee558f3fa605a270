#!/usr/bin/env python3
"""lab/bench/peers: prompts, the table, processes of peers, turns, refusals and the reading of checkpoints, without network and without an
engine. tests/cluster/peers_test.py runs compare.py with a cluster."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PEERS = ROOT / "lab/bench/peers"
sys.path[:0] = [str(PEERS), str(HERE), str(ROOT / "training"), str(ROOT / "tests/cluster")]
import numpy  # noqa: E402
import compare  # noqa: E402
import environment  # noqa: E402
import llama_folder  # noqa: E402
import table  # noqa: E402
import workload  # noqa: E402
from checkpoint import Checkpoint, CheckpointError, interleaved, types_in  # noqa: E402
from engines import EngineError, Peer  # noqa: E402
from stopwatch import at_most, wait_until  # noqa: E402

FAILS, DIES, HANGS = 9001, 9002, 9003  # prompts of fake_peer.py


class InFolder(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.holder.name)

    def tearDown(self):
        self.holder.cleanup()

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path


class Workload(InFolder):
    def test_works_and_types_are_read_and_faults_named(self):
        self.assertEqual(workload.read_works("1x8,4x1"), [workload.Work(1, 8), workload.Work(4, 1)])
        self.assertEqual(workload.Work(1, 8).label, "greedy, 8 requests")
        self.assertEqual(workload.Work(4, 1).label, "beam search, W = 4, 1 request")
        for bad in ("4", "0x1", "1x0", "1x8,", "ax1"):
            with self.assertRaisesRegex(workload.WorkloadError, "--works: expected"):
                workload.read_works(bad)
        folder, file = pathlib.Path("a"), pathlib.Path("a/b.gguf")
        self.assertEqual(workload.read_types("int8,f32", folder), ["int8", "f32"])
        self.assertEqual([workload.read_types(None, model) for model in (folder, file)], [list(workload.TYPES), ["file"]])
        for text, model, bad in (("f32,f64", folder, "f64"), ("file", folder, "file"), ("f32", file, "f32")):
            with self.assertRaisesRegex(workload.WorkloadError, f"--types: '{bad}' for {model.name}: expected"):
                workload.read_types(text, model)

    def test_no_two_prompts_begin_alike_and_all_are_equally_long(self):
        prompts = workload.Prompts(list(range(100)), [1, 2], 16, 20)
        taken = prompts.take(15) + prompts.take(5)
        self.assertEqual({len(ids) for ids in taken}, {16})
        self.assertEqual({tuple(ids[:2]) for ids in taken}, {(1, 2)})
        self.assertEqual(len({ids[2] for ids in taken}), 20)
        for ids in taken:
            self.assertEqual(ids[2:], list(range(ids[2], ids[2] + 14)))

    def test_a_text_that_repeats_itself_has_prompts_that_begin_differently(self):
        prompts = workload.Prompts([i % 25 for i in range(200)], [1], 8, 20).take(20)
        self.assertEqual(len({ids[1] for ids in prompts}), 20)
        many = workload.Prompts([i * i % 101 for i in range(300)], [1], 8, 90).take(90)  # 51 different tokens
        self.assertEqual(len({tuple(ids[1:3]) for ids in many}), 90)

    def test_a_short_text_is_refused(self):
        for length, count in ((16, 100), (103, 1), (2, 1)):
            with self.assertRaisesRegex(workload.WorkloadError, "100 tokens have no"):
                workload.Prompts(list(range(100)), [1, 2], length, count)

    def test_texts_and_json_lines(self):
        self.assertEqual(workload.read_text(self.write("a.md", "one\ntwo")), "one\ntwo")
        self.assertEqual(workload.read_text(self.write("a.jsonl", '{"prompt": "p"}\n{"turns": ["q", "r"]}\n')), "p\nq")
        for bad in ("{", "[]", '{"text": "p"}', '{"turns": []}', '{"prompt": 3}'):
            with self.assertRaisesRegex(workload.WorkloadError, "a.jsonl: expected lines"):
                workload.read_text(self.write("a.jsonl", bad))
        with self.assertRaisesRegex(workload.WorkloadError, "none.md: No such file"):
            workload.read_text(self.folder / "none.md")


def answer(engine, turn, seconds, ids, kind="f32", work="1x1"):
    return {"kind": "answer", "type": kind, "work": work, "turn": turn, "engine": engine, "seconds": seconds, "ids": ids}


RUN = {"kind": "run", "format_version": table.FORMAT_VERSION, "date": "today", "threads": 1, "usable_cores": 1, "cores": 4, "policy": "nice 0", "cpu": "c", "command": "d"}
LOADED = [{"kind": "engine", "type": "f32", "engine": name, "version": "1"} for name in ("coppice", "slow", "other")]


class Table(InFolder):
    def test_rates_are_of_all_texts_and_ratios_of_the_same_turn(self):
        ids = [[5] * 10, [6] * 10]
        rows = [RUN, *LOADED]
        for turn, (ours, theirs) in enumerate(((1, 2), (2, 20), (4, 4)), 1):  # the machine becomes slower
            rows += [answer("slow", turn, theirs, ids), answer("coppice", turn, ours, ids)]
        head, row = table.lines(rows)
        self.assertRegex(row, r"f32 +greedy, 1 request +10 \[5, 20\] +5 \[1, 10\] +0\.50 +6 of 6")
        self.assertLess(head.index("coppice, tokens/s"), head.index("slow, tokens/s"))
        self.assertNotIn("other", head)

    def test_texts_that_differ_are_counted_and_named(self):
        rows = [RUN, *LOADED, answer("coppice", 1, 1, [[1, 2, 3], [4, 5, 6]]), answer("slow", 1, 1, [[1, 2, 3], [4, 9, 6]]),
                answer("other", 1, 1, [[1, 2, 3], [4, 5]])]
        cells = table.cells(rows)["f32"]["1x1"]
        self.assertEqual(cells["slow"].agreement(cells["coppice"]), (1, 2, [((1, 1), 1, 1)]))
        self.assertEqual(cells["other"].agreement(cells["coppice"]), (1, 2, [((1, 1), 1, 2)]))
        self.assertIn("f32, 1x1: slow and coppice differ in turn 1, prompt 2, from token 2 on", table.notes(rows))
        self.assertIn("1 of 2", table.lines(rows)[1])

    def test_what_an_engine_lacks_is_a_dash(self):
        rows = [RUN, *LOADED, answer("coppice", 1, 1, [[1]]), answer("slow", 1, 1, [[1]]), answer("coppice", 1, 1, [[1]], "bf16", "4x1"),
                {"kind": "absent", "type": "bf16", "engine": "slow", "reason": "slow: start: no bf16"}]
        found = table.lines(rows, markdown=True)
        self.assertEqual(found[3], "| bf16 | beam search, W = 4, 1 request | 1 [1, 1] | - | - | - |")
        self.assertIn("absent: bf16, slow: start: no bf16", table.notes(rows))

    def test_turns_of_two_runs_are_not_the_same(self):
        rows = [RUN, *LOADED, answer("coppice", 1, 1, [[1]]), answer("slow", 1, 1, [[1]]), RUN, answer("coppice", 1, 0.5, [[2]])]
        cells = table.cells(rows)["f32"]["1x1"]
        self.assertEqual(sorted(cells["coppice"].rates()), [1, 2])
        self.assertEqual(cells["slow"].against(cells["coppice"]), 1)
        self.assertEqual(cells["slow"].agreement(cells["coppice"]), (1, 1, []))

    def test_records_are_read_back_and_faults_named(self):
        path = self.write("run.jsonl", json.dumps(RUN) + "\n")
        self.assertEqual(table.read_records([path, path]), [RUN, RUN])
        for bad in ("{", "[]", "{}", json.dumps(dict(RUN, format_version=99))):
            self.write("run.jsonl", json.dumps(RUN) + "\n" + bad + "\n")
            with self.assertRaisesRegex(table.RecordError, "run.jsonl:2: is no record"):
                table.read_records([path])
        with self.assertRaisesRegex(table.RecordError, "none: No such file"):
            table.read_records([self.folder / "none"])


class Environment(InFolder):
    def test_every_peer_of_the_table_is_pinned_and_has_a_program(self):
        for name, peer in environment.read_peers().items():
            self.assertTrue((PEERS / peer["program"]).is_file(), name)
            for package in peer["packages"]:
                self.assertRegex(package, r"^[\w-]+==\d[\w.]*$")
        with self.assertRaisesRegex(environment.PeerError, "a: beams: expected a bool"):
            environment.read_peers(self.write("t.toml", '[a]\nwhat = "w"\npackages = []\nprogram = "p"\n'))

    def stub(self, install):
        """An environment whose Python lacks every package and runs this line of shell for pip."""
        (self.folder / "bin").mkdir()
        python = self.write("bin/python", f'#!/bin/sh\ncase "$2" in pip) {install} ;; *) exit 1 ;; esac\n')
        python.chmod(0o755)
        self.write("bin/pip", "")

    def refusal(self, install):
        self.stub(install)
        with self.assertRaises(environment.PeerError) as raised:
            environment.prepare(self.folder, "p", {"packages": ["x==1"]}, lambda _: None)
        return str(raised.exception)

    def test_without_network_the_reason_is_the_network(self):
        self.assertIn("p: cannot be installed: the package index is not reached (no network?)",
                      self.refusal("echo 'NewConnectionError: Failed to establish a new connection' >&2; exit 1"))

    def test_a_package_that_does_not_build_says_why(self):
        text = self.refusal("echo 'ERROR: Failed to build x' >&2; exit 1")
        self.assertIn("p: cannot be installed: ERROR: Failed to build x", text)
        self.assertIn("Failed to build x", (self.folder / "p.log").read_text())

    def test_what_is_built_gets_its_variables_and_a_log_of_success_is_removed(self):
        self.stub(f'echo "$CMAKE_ARGS $*" > "{self.folder}/seen"')
        python = environment.prepare(self.folder, "p", {"packages": ["x==1", "y==2"], "built": {"CMAKE_ARGS": "-DA=B"}}, lambda _: None)
        self.assertEqual(python, self.folder / "bin/python")
        self.assertRegex((self.folder / "seen").read_text(), r"^-DA=B -m pip install .* x==1 y==2$")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["bin", "seen"])

    def test_only_an_environment_is_removed(self):
        inside = self.write("kept", "")
        compare.remove_environment(self.folder)
        self.assertTrue(inside.exists())
        self.write("pyvenv.cfg", "")
        compare.remove_environment(self.folder)
        self.assertFalse(self.folder.exists())
        self.folder.mkdir()

    def test_a_named_python_must_have_the_packages(self):
        with self.assertRaisesRegex(environment.PeerError, "p: .* lacks no-such-package-for-coppice"):
            environment.check(sys.executable, "p", {"packages": ["no-such-package-for-coppice==1"]})


class Interrupted(InFolder):
    def test_an_installation_that_is_interrupted_ends_and_leaves_no_files(self):
        (self.folder / "bin").mkdir()
        (self.folder / "tmp").mkdir()
        python = self.write("bin/python", f'#!/bin/sh\n[ "$2" = pip ] || exit 1\nmkdir "$TMPDIR/build"\necho $$ > "{self.folder}/pid.new"\n'
                                          f'mv "{self.folder}/pid.new" "{self.folder}/pid"\nexec sleep 3600\n')
        python.chmod(0o755)
        self.write("bin/pip", "")
        process = subprocess.Popen([sys.executable, "-B", PEERS / "compare.py", f"--model={self.folder}", f"--venv={self.folder}", "--peers=ctranslate2"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, TMPDIR=str(self.folder / "tmp")))
        self.assertTrue(wait_until((self.folder / "pid").exists, 60))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=at_most(60))
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, errors)
        with self.assertRaises(ProcessLookupError):
            os.kill(int((self.folder / "pid").read_text()), 0)
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["bin", "ctranslate2.log", "pid", "tmp"])


class Processes(InFolder):
    def peer(self, timeout_s=at_most(120)):
        peer = Peer("fake", sys.executable, HERE / "fake_peer.py", True, ROOT, self.folder, 1, timeout_s)
        self.addCleanup(peer.stop)
        return peer

    def test_answers_and_what_a_library_prints_is_no_answer(self):
        peer = self.peer()
        peer.start("f32")
        self.assertEqual(peer.version, "1.0")
        seconds, ids = peer.generate([[1, 5], [1, 6]], 4, 3)
        self.assertEqual(ids, [[9, 9, 9], [10, 10, 10]])
        self.assertGreater(seconds, 0)

    def test_a_refusal_is_named_and_the_process_goes_on(self):
        peer = self.peer()
        with self.assertRaisesRegex(EngineError, "fake: start: no int4 here"):
            peer.start("int4")
        peer.stop()
        peer.start("f32")
        with self.assertRaisesRegex(EngineError, "fake: 1 prompts, width 1: as it was told to"):
            peer.generate([[FAILS]], 1, 2)
        self.assertEqual(peer.generate([[5]], 1, 2)[1], [[6, 6]])

    def test_a_process_that_ends_or_hangs_is_named_and_gone(self):
        peer = self.peer()
        peer.start("f32")
        with self.assertRaisesRegex(EngineError, r"its process has ended \(7\)"):
            peer.generate([[DIES]], 1, 2)
        with self.assertRaisesRegex(EngineError, r"its process has ended \(7\)"):
            peer.generate([[5]], 1, 2)
        peer.stop()
        peer.start("f32")
        peer.timeout_s, pid = 0.2, peer.process.pid
        with self.assertRaisesRegex(EngineError, "no answer in 0.2 s"):
            peer.generate([[HANGS]], 1, 2)
        peer.stop()
        with self.assertRaises(ProcessLookupError):
            os.kill(pid, 0)


class FakeEngine:
    """Answers in this process. At the call of the number `fails` it refuses; `short` texts lack a token."""

    def __init__(self, name, beams=True, fails=None, short=False, starts=True):
        self.name, self.beams, self.fails, self.short, self.starts = name, beams, fails, short, starts
        self.version, self.asked, self.stopped = "1", [], 0

    def start(self, kind):
        if not self.starts:
            raise EngineError(f"{self.name}: no {kind}")

    def generate(self, prompts, width, tokens):
        self.asked.append((prompts, width))
        if len(self.asked) == self.fails:
            raise EngineError(f"{self.name}: failed")
        return 0.5, [[7] * (tokens - self.short) for _ in prompts]

    def stop(self):
        self.stopped += 1


class Turns(unittest.TestCase):
    def compare(self, *engines, turns=2):
        records = compare.Records(None)
        comparison = compare.Comparison(engines, "f32", records)
        comparison.start()
        works = workload.read_works("1x2,4x1")
        comparison.measure(works, turns, workload.Prompts(list(range(500)), [], 8, 3 * (turns + 1)), 4)
        return records.rows

    def setUp(self):
        self.settle, compare.SETTLE_S = compare.SETTLE_S, 0

    def tearDown(self):
        compare.SETTLE_S = self.settle

    def test_all_get_the_same_prompts_once_and_the_first_turn_is_not_counted(self):
        ours, peer = FakeEngine("coppice"), FakeEngine("peer")
        rows = [row for row in self.compare(ours, peer) if row["kind"] == "answer"]
        self.assertEqual(ours.asked, peer.asked)
        self.assertEqual([(len(prompts), width) for prompts, width in ours.asked], [(2, 1), (1, 4)] * 3)
        begins = [ids[0] for prompts, _ in ours.asked for ids in prompts]
        self.assertEqual(len(set(begins)), len(begins))
        self.assertEqual({row["turn"] for row in rows}, {1, 2})
        self.assertEqual(len(rows), 2 * 2 * 2)

    def test_an_engine_without_beams_is_not_asked_for_them(self):
        peer = FakeEngine("peer", beams=False)
        self.compare(FakeEngine("coppice"), peer)
        self.assertEqual({width for _, width in peer.asked}, {1})

    def test_a_peer_that_fails_is_stopped_and_the_others_go_on(self):
        ours, failing, short, absent = FakeEngine("coppice"), FakeEngine("failing", fails=4), FakeEngine("short", short=True), FakeEngine("absent", starts=False)
        rows = self.compare(ours, failing, short, absent)
        self.assertEqual([engine.stopped for engine in (ours, failing, short, absent)], [0, 1, 1, 1])
        self.assertEqual([len(engine.asked) for engine in (ours, failing, short, absent)], [6, 4, 1, 0])
        self.assertEqual({row["engine"]: row["reason"] for row in rows if row["kind"] == "absent"},
                         {"failing": "failing: failed", "short": "short: texts of [3, 3] tokens, expected 2 of 4", "absent": "absent: no f32"})

    def test_without_coppice_there_is_no_comparison(self):
        with self.assertRaisesRegex(EngineError, "coppice: failed"):
            self.compare(FakeEngine("coppice", fails=2), FakeEngine("peer"))


class Checkpoints(InFolder):
    def folder_with(self, **config):
        values = numpy.array([[1, -2.5], [0.15625, 3e38]], numpy.float32)
        bf16 = (values.view(numpy.uint32) >> 16).astype("<u2")
        whole = dict(llama_folder.config(2, 1, 1, 1, 4, 2, 16), **config)
        llama_folder.write_folder(self.folder, whole, {"a": ((2, 2), bf16.tobytes()), "b": ((2,), bf16[1].tobytes())}, "BF16")
        return bf16.astype(numpy.uint32) << 16

    def test_tensors_of_both_types_are_read(self):
        expected = self.folder_with().view(numpy.float32)
        model = Checkpoint(self.folder)
        numpy.testing.assert_array_equal(model["a"], expected)
        numpy.testing.assert_array_equal(model["b"], expected[1])
        llama_folder.write_folder(self.folder, llama_folder.config(2, 1, 1, 1, 4, 2, 16), {"a": ((3,), numpy.arange(3, dtype="<f4").tobytes())})
        numpy.testing.assert_array_equal(Checkpoint(self.folder)["a"], [0, 1, 2])
        self.assertTrue(model.tied)
        self.assertEqual(types_in(self.folder), {"F32"})

    def test_what_is_not_converted_is_named(self):
        self.folder_with(rope_scaling={"rope_type": "llama3"})
        with self.assertRaisesRegex(CheckpointError, "rope_scaling is not converted"):
            Checkpoint(self.folder)
        self.folder_with(architectures=["GPT2LMHeadModel"])
        with self.assertRaisesRegex(CheckpointError, "expected LlamaForCausalLM"):
            Checkpoint(self.folder)
        self.folder_with()
        with self.assertRaisesRegex(CheckpointError, "no tensor c"):
            Checkpoint(self.folder)["c"]

    def test_rows_of_a_head_are_interleaved_by_halves(self):
        rows = numpy.arange(12, dtype=numpy.float32).reshape(12, 1)  # two heads of six rows
        self.assertEqual(interleaved(rows, 2).ravel().tolist(), [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11])


class Arguments(InFolder):
    def refused(self, *flags):
        result = subprocess.run([sys.executable, "-B", PEERS / "compare.py", *map(str, flags)], capture_output=True, text=True, timeout=at_most(120))
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        return result.stderr

    def test_wrong_arguments_are_named_before_anything_starts(self):
        written = self.write("run.jsonl", "")
        for flags, reason in (((), "give --model DIR, or --report FILE"), (("--model=a", "--report", "b"), "give --model DIR, or --report FILE"),
                              (("--model=a", "--types=f8"), "--types: 'f8' for a: expected"), (("--model=a", "--works=4"), "expected WIDTHxREQUESTS"),
                              (("--model=a", "--turns=0"), "expected 1 or more"), (("--model=a", "--text=/none"), "/none: No such file"),
                              (("--model=a", f"--json={written}"), "File exists"), (("--model=a", "--peers=vast"), "unknown 'vast'"),
                              (("--model=a", "--table=/none"), "/none: No such file"), (("--report", "/none"), "/none: No such file")):
            self.assertIn(reason, self.refused(*flags))


if __name__ == "__main__":
    unittest.main()
