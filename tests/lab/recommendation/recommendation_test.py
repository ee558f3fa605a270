#!/usr/bin/env python3
"""lab/bench/recommendation: the synthetic recommender, the trie, the reference, turns and the table, without network and without an engine.
tests/cluster/recommendation_test.py runs it with a cluster."""
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TOOL = ROOT / "lab/bench/recommendation"
sys.path[:0] = [str(TOOL), str(ROOT / "lab/bench/peers"), str(ROOT / "tests/cluster")]
import numpy  # noqa: E402
import codes as coded  # noqa: E402
import compare  # noqa: E402
import recommendation  # noqa: E402
import recommendation_table  # noqa: E402
import table  # noqa: E402
from checkpoint import Checkpoint  # noqa: E402
from engines import EngineError  # noqa: E402
from item_trie import Trie, read_items  # noqa: E402
from reference import Reference  # noqa: E402
from stopwatch import at_most  # noqa: E402

CODES, ITEMS = 24, 600
SMALL = ["--items", ITEMS, "--codes", CODES, "--hidden", 80, "--layers", 3, "--heads", 2, "--ffn", 64]


def make(folder, *more):
    return subprocess.run([str(part) for part in (sys.executable, "-B", TOOL / "make_recommender.py", "--out", folder, *SMALL, *more)],
                          capture_output=True, text=True, timeout=at_most(60))


class WithData(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.data = pathlib.Path(cls.holder.name) / "data"
        made = make(cls.data)
        if made.returncode != 0:
            raise RuntimeError(made.stderr)
        cls.items = read_items(cls.data / "items.jsonl")

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()


class Maker(WithData):
    def test_items_are_different_and_have_a_code_of_each_level(self):
        self.assertEqual(self.items.shape, (ITEMS, 4))
        self.assertEqual(len(set(map(tuple, self.items.tolist()))), ITEMS)
        for level in range(4):
            first = coded.token(level, 0, CODES)
            self.assertTrue(((first <= self.items[:, level]) & (self.items[:, level] < first + CODES)).all())
        rows = [json.loads(line) for line in (self.data / "items.jsonl").read_text().splitlines()]
        self.assertEqual([row["tokens"] for row in rows], self.items.tolist())  # ascending
        self.assertEqual(len({row["id"] for row in rows} | {row["name"] for row in rows}), 2 * ITEMS)

    def test_texts_of_codes_are_the_tokens_of_the_items(self):
        tokenizer = json.loads((self.data / "target/tokenizer.json").read_text())
        ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        for level, code in itertools.product(range(4), (0, CODES - 1)):
            self.assertEqual(ids[coded.text(level, code)], coded.token(level, code, CODES))
        self.assertEqual(sorted([*ids.values(), *tokenizer["model"]["vocab"].values()]), list(range(coded.FIRST_CODE + 4 * CODES)))

    def test_the_same_arguments_give_the_same_files(self):
        again = pathlib.Path(self.holder.name) / "again"
        self.assertEqual(make(again).returncode, 0)
        for name in ("items.jsonl", "target/model.safetensors", "draft/model.safetensors"):
            self.assertEqual((again / name).read_bytes(), (self.data / name).read_bytes(), name)
        self.assertEqual(make(again, "--seed", 2).returncode, 0)
        self.assertNotEqual((again / "items.jsonl").read_bytes(), (self.data / "items.jsonl").read_bytes())

    def test_both_models_expect_the_next_level_and_likely_items_are_in_the_catalogue(self):
        pairs = {tuple(item[:2]) for item in self.items.tolist()}
        for folder in ("target", "draft"):
            model, in_pairs = Reference(self.data / folder), []
            for length in range(1, 9):
                prompt = self.items[:3].ravel()[:length].tolist()
                chances = numpy.exp(model.read(prompt)[1][0])
                first = coded.token(length % 4, 0, CODES)
                self.assertGreater(chances[first:first + CODES].sum(), 0.98, (folder, length))
                if length % 4 == 1:
                    in_pairs += [chances[first + code] for code in range(CODES) if (prompt[-1], first + code) in pairs]
            self.assertEqual(len(in_pairs), 20, "of 48: by chance 0.8")
            self.assertGreater(sum(in_pairs), 1.8, folder)  # of two prompts

    def test_level_and_vector_of_the_last_code_reach_the_head_unchanged(self):
        for folder in ("target", "draft"):
            model, ids = Reference(self.data / folder), self.items[:2].ravel()
            x, _ = model.forward(ids[None], None)
            own = len(coded.LEVELS) + coded.TRAITS
            numpy.testing.assert_array_equal(x[0, :, -own:], model.embedding[ids][:, -own:])
            self.assertGreater(numpy.abs(x[0, :, :-own] - model.embedding[ids][:, :-own]).max(), 0.1, folder)

    def test_what_cannot_be_made_is_refused(self):
        for flags, reason in ((("--hidden", 58), "expected --hidden above 58"), (("--heads", 3), "which is even"),
                              (("--codes", 4, "--items", 257), "4 codes a level have no 257")):
            made = make(pathlib.Path(self.holder.name) / "none", *flags)
            self.assertEqual((made.returncode, reason in made.stderr), (2, True), made.stderr)


class Tries(WithData):
    def test_children_and_items_are_those_of_the_list(self):
        trie, items = Trie(self.items), [tuple(item) for item in self.items.tolist()]
        self.assertEqual([trie.find(item) for item in items], list(range(ITEMS)))
        for depth in range(4):
            for prefix in {item[:depth] for item in items}:
                expected = sorted({item[depth] for item in items if item[:depth] == prefix})
                self.assertEqual(trie.children(depth, trie.find(prefix)).tolist(), expected)
        known = set(items)
        wrong = next(item for item in itertools.product(*(sorted(set(column)) for column in zip(*items))) if item not in known)
        for sequence in (wrong, (*items[0][:3], 5), items[0][:3], (*items[0], 5), ()):
            self.assertFalse(trie.legal(sequence), sequence)
        self.assertTrue(trie.legal(items[-1]))

    def test_a_line_that_is_no_item_is_named(self):
        path = pathlib.Path(self.holder.name) / "bad.jsonl"
        for bad in ("{", '{"id": "B"}', '{"tokens": [1]}'):
            path.write_text('{"tokens": [1, 2]}\n' + bad + "\n")
            with self.assertRaisesRegex(ValueError, "bad.jsonl:2: expected an item of 2 tokens"):
                read_items(path)
        path.write_text("")
        with self.assertRaisesRegex(ValueError, "no items"):
            read_items(path)


class References(WithData):
    def test_a_forward_pass_of_parts_is_that_of_the_whole(self):
        model, ids = Reference(self.data / "target"), self.items[:6].ravel()
        whole, _ = model.forward(ids[None], None)
        _, past = model.forward(ids[None, :20], None)
        rest, _ = model.forward(numpy.stack([ids[20:], ids[20:]]), past)
        numpy.testing.assert_allclose(rest, whole[:, 20:].repeat(2, 0), rtol=1e-12, atol=1e-12)

    def test_a_search_that_is_wide_enough_ranks_all_items(self):
        model, trie, prompt = Reference(self.data / "target"), Trie(self.items), self.items[[9, 400, 77]].ravel().tolist()
        found, scores = model.search(model.read(prompt), trie, ITEMS)
        rows, _ = model.forward(numpy.concatenate([numpy.tile(prompt, (ITEMS, 1)), self.items], 1), None)
        expected = sum(model.log_probabilities(rows[:, len(prompt) - 1 + depth])[numpy.arange(ITEMS), self.items[:, depth]] for depth in range(4))
        order = numpy.argsort(-expected)
        self.assertEqual(found.tolist(), self.items[order].tolist())
        numpy.testing.assert_allclose(scores, expected[order], rtol=0, atol=1e-9)

    def test_a_narrow_search_is_that_of_the_definition(self):
        model, trie, prompt = Reference(self.data / "target"), Trie(self.items), self.items[[5, 6]].ravel().tolist()
        beams = [((), 0.0)]
        for depth in range(4):
            candidates = []
            for beam, score in beams:
                row = model.log_probabilities(model.forward(numpy.array([prompt + list(beam)]), None)[0][:, -1])[0]
                for token in {int(item[depth]) for item in self.items if tuple(item[:depth].tolist()) == beam}:
                    candidates.append(((*beam, token), score + row[token]))
            beams = sorted(candidates, key=lambda candidate: -candidate[1])[:7]
        found, scores = model.search(model.read(prompt), trie, 7)
        self.assertEqual(list(map(tuple, found.tolist())), [beam for beam, _ in beams])
        numpy.testing.assert_allclose(scores, [score for _, score in beams], atol=1e-9)

    def test_it_reads_the_tensors_of_the_folder(self):
        tensors = Checkpoint(self.data / "target")
        self.assertFalse(tensors.tied)
        self.assertEqual((tensors.layers, tensors.heads, tensors.kv_heads), (3, 2, 1))


class FakeEngine:
    """Answers with the first items; `wrong` of them are none, and at the call of the number `fails` it lacks one."""

    def __init__(self, name, items, wrong=0, fails=None, most_repeated=None):
        self.name, self.items, self.wrong, self.fails, self.most_repeated = name, items.tolist(), wrong, fails, most_repeated
        self.version, self.asked, self.stopped = "1", [], 0

    def start(self, kind):
        pass

    def recommend(self, prompts, width, tokens):
        self.asked.append((prompts, width))
        found = self.items[:width - (len(self.asked) == self.fails)]
        return 0.5, [0.25] * len(prompts), [found[:len(found) - self.wrong] + [[0] * tokens] * self.wrong for _ in prompts]

    def stop(self):
        self.stopped += 1


class Turns(WithData):
    def setUp(self):
        self.settle, compare.SETTLE_S = compare.SETTLE_S, 0

    def tearDown(self):
        compare.SETTLE_S = self.settle

    def compare(self, *engines, checked=1):
        arguments = types.SimpleNamespace(data=self.data, type="f32", turns=2, checked=checked)
        records = compare.Records(None)
        comparison = recommendation.Comparison(engines, arguments, self.items, records)
        comparison.start()
        comparison.measure([recommendation.Work(12, width, clients) for width in (5, 10) for clients in (1, 2)])
        return records.rows

    def test_all_get_the_same_histories_once_and_the_first_turn_is_not_counted(self):
        ours, peer = FakeEngine("coppice", self.items), FakeEngine("peer", self.items, wrong=2)
        rows = self.compare(ours, peer)
        answers = [row for row in rows if row["kind"] == "answer"]
        self.assertEqual(ours.asked, peer.asked)
        self.assertEqual([(len(prompts), width) for prompts, width in ours.asked], [(1, 5), (2, 5), (1, 10), (2, 10)] * 3)
        histories = [tuple(prompt) for prompts, _ in ours.asked for prompt in prompts]
        self.assertEqual((len(set(histories)), {len(history) for history in histories}), (len(histories), {12}))
        for start in range(0, 12, 4):
            self.assertTrue(all(Trie(self.items).legal(history[start:start + 4]) for history in histories))
        self.assertEqual([row["turn"] for row in answers], [1] * 8 + [2] * 8)
        illegal = {(row["engine"], row["clients"]): row["illegal"] for row in answers}
        self.assertEqual(illegal, {("coppice", 1): 0, ("coppice", 2): 0, ("peer", 1): 2, ("peer", 2): 4})

    def test_answers_are_compared_with_the_reference_in_as_many_turns_as_asked(self):
        model, trie = Reference(self.data / "target"), Trie(self.items)
        right = FakeEngine("right", self.items)
        right.recommend = lambda prompts, width, tokens: (1, [1] * len(prompts), [model.search(model.read(ids), trie, width)[0].tolist() for ids in prompts])
        rows = [row for row in self.compare(FakeEngine("coppice", self.items), right) if row["kind"] == "check"]
        self.assertEqual([(row["turn"], row["width"], row["clients"]) for row in rows if row["engine"] == "right"], [(1, 5, 1), (1, 10, 1)])
        self.assertTrue(all(row["same"] and row["share"] == 1 for row in rows if row["engine"] == "right"))
        self.assertFalse(any(row["same"] for row in rows if row["engine"] == "coppice"))
        self.assertEqual([row for row in self.compare(right, checked=0) if row["kind"] == "check"], [])

    def test_the_share_of_a_set(self):
        self.assertEqual(recommendation.agreement([[1, 2], [3, 4]], [[3, 4], [1, 2]]), (True, 1))
        self.assertEqual(recommendation.agreement([[1, 2], [3, 5]], [[3, 4], [1, 2]]), (False, 0.5))

    def test_a_peer_that_repeats_prompts_is_spared_the_largest_works(self):
        peer = FakeEngine("peer", self.items, most_repeated=12 * 5)
        self.compare(FakeEngine("coppice", self.items), peer)
        self.assertEqual({(len(prompts), width) for prompts, width in peer.asked}, {(1, 5)})

    def test_a_peer_that_lacks_a_sequence_is_stopped_and_the_others_go_on(self):
        ours, failing = FakeEngine("coppice", self.items), FakeEngine("failing", self.items, fails=3)
        rows = self.compare(ours, failing)
        self.assertEqual([row["reason"] for row in rows if row["kind"] == "absent"], ["failing: 12 tokens, W = 10, 1 client: [9] sequences"])
        self.assertEqual((len(ours.asked), len(failing.asked), failing.stopped), (12, 3, 1))
        with self.assertRaisesRegex(EngineError, r"coppice: .* \[9\] sequences"):
            self.compare(FakeEngine("coppice", self.items, fails=3))


RUN = {"kind": "run", "format_version": table.FORMAT_VERSION, "date": "today", "type": "f32", "items": 9, "threads": 1, "usable_cores": 1, "cores": 4,
       "policy": "nice 0", "cpu": "c", "command": "d"}


def answer(engine, turn, seconds, width=5, illegal=0, **more):
    return {"kind": "answer", "engine": engine, "prompt_tokens": 12, "width": width, "clients": 2, "turn": turn, "seconds": seconds,
            "latencies_s": [seconds / 2, seconds], "returned": 2 * width, "illegal": illegal, **more}


class Table(unittest.TestCase):
    ROWS = [RUN, *({"kind": "engine", "engine": name, "version": "1"} for name in ("coppice", "slow", "unasked"))]

    def test_a_row_for_each_engine_and_work(self):
        rows = list(self.ROWS)
        for turn, (ours, theirs) in enumerate(((1, 2), (2, 20), (4, 4)), 1):  # the machine becomes slower
            rows += [answer("slow", turn, theirs, illegal=turn), answer("coppice", turn, ours, repeat_s=ours / 10)]
        rows += [{"kind": "check", "engine": "slow", "prompt_tokens": 12, "width": 5, "clients": 2, "turn": 1, "same": False, "share": 0.8}]
        _, ours, theirs = recommendation_table.lines(rows)
        self.assertEqual(ours, ["12", "5", "2", "coppice", "1.00 [0.50, 2.00]", "-", "1500", "3500", "0.0%", "-", "-", "200"])
        self.assertEqual(theirs, ["12", "5", "2", "slow", "0.50 [0.10, 1.00]", "0.500", "3000", "17500", "20.0%", "0 of 1", "80.0%", "-"])

    def test_growth_is_that_of_one_turn(self):
        rows = [RUN, *self.ROWS[1:2]]
        for turn, factor in enumerate((1, 3, 2), 1):
            rows += [answer("coppice", turn, 1, repeat_s=0.1 * factor), answer("coppice", turn, 1, width=20, repeat_s=0.4 * factor)]
        rows += [answer("coppice", 3, 1, width=80)]
        self.assertEqual(recommendation_table.growth(rows), ["coppice, 12 tokens: decoding takes 4.00 times as long with W = 20 as with 5"])
        said = recommendation_table.notes([*rows, {"kind": "absent", "engine": "x", "reason": "x: no"}, {"kind": "load", "when": "after", "load": [1, 2, 3]}])
        self.assertIn("absent: x: no", said)
        self.assertIn("run of today: f32, 9 items, 1 threads on 1 of 4 cores, nice 0, c: d", said)
        self.assertIn("load of the machine after: 1.0 2.0 3.0 (1, 5, 15 minutes)", said)


class Arguments(WithData):
    def test_wrong_arguments_are_named_before_anything_starts(self):
        for flags, reason in (((), "give --data DIR, or --report FILE"), (("--data=a", "--report", "b"), "give --data DIR, or --report FILE"),
                              (("--data=/none",), "/none/items.jsonl: No such file"), (("--data=a", "--widths=0"), "numbers from 1 on"),
                              (("--data=a", "--clients=1,1"), "different numbers"), (("--data=a", "--type=f8"), "invalid choice"),
                              ((f"--data={self.data}", "--prompt-tokens=30"), "30 is no multiple of 4")):
            result = subprocess.run([sys.executable, "-B", TOOL / "recommendation.py", *flags], capture_output=True, text=True, timeout=at_most(60))
            self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
            self.assertIn(reason, result.stderr)


if __name__ == "__main__":
    unittest.main()
