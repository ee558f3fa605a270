#!/usr/bin/env python3
"""training/distill_draft.py without PyTorch: what it asks a target, the files that it keeps, how it goes on after an interruption, what it
refuses. with_torch.py has the training."""
import contextlib
import importlib.util
import io
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import numpy
from fake_target import AFTER, BEFORE, EOS, FakeTarget

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOOL = ROOT / "training/distill_draft.py"
sys.path[:0] = [str(ROOT / "training"), str(ROOT / "tests/cluster")]
import distill_draft  # noqa: E402
import tool_arguments  # noqa: E402
from draft_distillation import openings, pieces, sampling, tensors  # noqa: E402
from draft_distillation.pieces import KEPT, PER_PIECE, DataError  # noqa: E402
from draft_distillation.state_layers import dflash_layers, eagle3_layers  # noqa: E402
from stopwatch import at_most  # noqa: E402


class WithFolder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.target = self.folder / "target"
        self.target.mkdir()
        (self.target / "config.json").write_text(json.dumps({"vocab_size": 400, "eos_token_id": EOS}))

    def command(self, target, *options):
        return [sys.executable, "-B", str(TOOL), "sample", "--target", str(self.target), "--out", str(self.folder / "text"),
                "--url", target.url, "--parallel", "8", *map(str, options)]

    def sample(self, target, *options, status=0):
        done = subprocess.run(self.command(target, *options), capture_output=True, text=True, timeout=at_most(200))
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def conversations(self):
        folder = str(self.folder / "text")
        return [conversation for number in pieces.numbers(folder) for conversation in pieces.read(folder, number)]


class Sampling(WithFolder):
    def test_a_conversation_is_a_question_and_its_answer_with_the_most_likely_ids(self):
        with FakeTarget() as target:
            self.sample(target, "--tokens", 1, "--seed", 3)
        read = self.conversations()
        self.assertEqual([c["number"] for c in read], list(range(len(read))))
        self.assertLessEqual(len(read), 2 * PER_PIECE)  # what was begun when the first answer came
        for c in read:
            first = 3 * sampling.MEANS + sampling.SEEDS * c["number"]
            opening = openings.of(3, c["number"])
            begun = BEFORE + [100 + ord(letter) for letter in opening.filled(str((first + 1) % 9))]
            prompt = begun + ([10 + (first + 3) % 7, 20] if opening.goes_on else []) + AFTER
            answer = list(range(30, 31 + (first + 2) % 10)) + [EOS]
            self.assertEqual((c["ids"].tolist(), c["asked"]), (prompt + answer, len(prompt)))
            for row, token in enumerate(answer[:-1]):
                self.assertEqual(c["top"][row].tolist(), [token] + list(range(40, 40 + KEPT - 1)))
                numpy.testing.assert_allclose(c["top_p"][row], [0.5 ** (i + 1) for i in range(KEPT)], rtol=1e-3, atol=1e-7)
            self.assertNotIn(EOS, c["top"][-1])  # of 21 that were listed the least likely
            numpy.testing.assert_allclose(c["own_p"], [0.5] * (len(answer) - 1) + [0.5 ** 22], rtol=1e-5)
        questions = [body for body in target.asked if "logprobs" not in body]
        answers = [body for body in target.asked if "logprobs" in body]
        self.assertEqual({(body["temperature"], body["logprobs"]) for body in answers}, {(1, KEPT)})
        self.assertEqual({(body["temperature"], *body["prompt"][:len(BEFORE)]) for body in questions}, {(0.7, *BEFORE)})

    def test_openings_are_of_all_kinds_and_are_the_same_every_time(self):
        drawn = [openings.of(1, number) for number in range(2000)]
        self.assertEqual(drawn, [openings.of(1, number) for number in range(2000)])
        self.assertNotEqual(drawn, [openings.of(2, number) for number in range(2000)])
        whole = sum(share for share, _ in openings.KINDS)
        for share, kind in openings.KINDS:
            # six standard deviations of a binomial count
            self.assertAlmostEqual(sum(opening in kind for opening in drawn) / 2000, share / whole, delta=6 * 0.5 / 2000 ** 0.5)
        for opening in drawn:
            self.assertTrue(opening.goes_on or opening.has_text, "a message that says nothing")

    def test_goes_on_with_what_is_missing(self):
        with FakeTarget() as target:
            self.sample(target, "--tokens", 1)
            before = {path.name: path.read_bytes() for path in (self.folder / "text").iterdir()}
            (self.folder / "text/piece-00009.npz.new").write_bytes(b"half")
            output = self.sample(target, "--tokens", 1)
            self.assertRegex(output, r"\d+ answered tokens are there already")
            asked = len(target.asked)
            tokens = sum(len(c["own_p"]) for c in self.conversations())
            self.sample(target, "--tokens", tokens + 1)
        for name, data in before.items():
            self.assertEqual((self.folder / "text" / name).read_bytes(), data)
        self.assertGreater(len(target.asked), asked)
        numbers = [c["number"] for c in self.conversations()]
        self.assertEqual(len(numbers), len(set(numbers)))
        first, later = ({body["seed"] for body in part} for part in (target.asked[:asked], target.asked[asked:]))
        self.assertTrue(first.isdisjoint(later), "what is there was asked again")

    def test_another_way_of_sampling_needs_another_folder(self):
        with FakeTarget() as target:
            self.sample(target, "--tokens", 1)
            output = self.sample(target, "--tokens", 1, "--answer-tokens", 9, status=2)
        self.assertIn("sampling.json: answer_tokens was 160 and is 9 now; sample into another folder\n", output)

    def test_prompts_of_a_file(self):
        path = self.folder / "prompts.jsonl"
        path.write_text('{"prompt": "ab"}\n\n{"prompt": "c"}\n')
        for chat in (True, False):
            with FakeTarget(chat=chat) as target:
                self.sample(target, "--tokens", 1, "--prompts", path)
            around = (BEFORE, AFTER) if chat else ([], [])
            wanted = [around[0] + [100 + ord(letter) for letter in text] + around[1] for text in ("ab", "c")]
            for c in self.conversations():
                self.assertEqual(c["ids"][:c["asked"]].tolist(), wanted[c["number"] % 2])
            self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_texts_of_a_file_are_what_every_question_is_about(self):
        path = self.folder / "texts.jsonl"
        path.write_text('{"text": "ab"}\n{"text": "c"}\n')
        with FakeTarget() as target:
            self.sample(target, "--tokens", 400, "--texts", path)
            self.assertRegex(self.sample(target, status=2), r"sampling\.json: texts was '\w{16}' and is None now")
            path.write_text('{"text": "ab"}\n{"text": "d"}\n')
            self.assertRegex(self.sample(target, "--texts", path, status=2), r"sampling\.json: texts was '\w{16}' and is '\w{16}' now")
        seen = set()
        for c in self.conversations():
            opening = openings.of(1, c["number"], about_texts=True)
            seen.add(opening)
            begun = BEFORE + [100 + ord(letter) for letter in opening.filled(("ab", "c")[c["number"] % 2])]
            asked = sampling.MEANS + sampling.SEEDS * c["number"] + 3
            self.assertEqual(c["ids"][:c["asked"]].tolist(), begun + ([10 + asked % 7, 20] if opening.goes_on else []) + AFTER)
        self.assertEqual({opening.goes_on for opening in seen}, {False, True})
        self.assertTrue(all(opening.has_text for opening in seen))
        self.assertIn("--prompts, --texts: expected one of them", self.sample(target, "--prompts", path, "--texts", path, status=2))

    def test_a_text_that_does_not_fit_is_named_before_anything_is_asked(self):
        path = self.folder / "texts.jsonl"
        path.write_text(json.dumps({"text": "b" * 632}) + "\n" + json.dumps({"text": "c" * 633}))
        with FakeTarget() as target:
            self.assertIn("--texts: number 2 has 633 tokens; fake has room for 632 beside the answer\n",
                          self.sample(target, "--texts", path, status=2))
            self.assertEqual(target.asked, [])

    def test_what_is_held_out_is_never_trained_on(self):
        for count in (20, 21, 39, 101, 1000):
            places = [sampling.place_of(number, count) for number in range(5000)]
            self.assertEqual(set(places), set(range(count)))
            held_out = {place for number, place in enumerate(places) if number % pieces.HELD_OUT == 0}
            self.assertTrue(held_out.isdisjoint(place for number, place in enumerate(places) if number % pieces.HELD_OUT))
        self.assertEqual([sampling.place_of(number, 3) for number in range(5)], [0, 1, 2, 0, 1])

    def test_a_target_without_a_chat_template_needs_prompts(self):
        with FakeTarget(chat=False) as target:
            self.assertIn("no chat template, so it cannot invent questions: give --prompts\n", self.sample(target, status=2))

    def test_a_request_that_fails_ends_it_and_leaves_whole_pieces(self):
        def fail(number, _):
            return (503, {"error": {"code": "lost", "message": "no replica"}}) if number > 3 * PER_PIECE else None

        with FakeTarget(fail) as target:
            self.assertIn("distill_draft: /v1/completions: 503 lost: no replica\n", self.sample(target, status=1))
        self.assertEqual(len(self.conversations()) % PER_PIECE, 0)

    def test_an_interruption_leaves_whole_pieces(self):
        reached, go_on = threading.Event(), threading.Event()

        def hold(*_):
            if any((self.folder / "text").glob("piece-*.npz")):
                reached.set()
                go_on.wait(at_most(60))

        with FakeTarget(hold) as target:
            with subprocess.Popen(self.command(target), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                self.assertTrue(reached.wait(at_most(60)))
                process.send_signal(signal.SIGTERM)
                go_on.set()
                process.communicate(timeout=at_most(60))
            self.assertEqual(process.returncode, 143)
        self.assertGreaterEqual(len(self.conversations()), PER_PIECE)
        self.assertEqual([path.name for path in (self.folder / "text").iterdir() if path.suffix == ".new"], [])


class Pieces(WithFolder):
    def written(self, **changes):
        conversation = {"ids": [1, 2, 3], "asked": 1, "top": numpy.zeros((2, KEPT)), "top_p": numpy.zeros((2, KEPT)), "own_p": [1, 1]}
        pieces.write(str(self.folder), 4, [conversation | changes])
        return pieces.path_of(str(self.folder), 4)

    def test_what_cannot_be_used_is_named(self):
        whole = pathlib.Path(self.written()).read_bytes()
        for data in (b"", b"no numbers", whole[:-100]):
            pathlib.Path(self.written()).write_bytes(data)
            with self.assertRaisesRegex(DataError, r"piece-00004\.npz: is not a piece of sampled text: "):
                pieces.read(str(self.folder), 4)
        for changes in ({"asked": 3}, {"asked": 0}, {"own_p": [1]}, {"top": numpy.zeros((1, KEPT))}):
            path = self.written(**changes)
            with self.subTest(changes), self.assertRaisesRegex(DataError, f"{path}: its arrays do not fit together"):
                pieces.read(str(self.folder), 4)
        with self.assertRaisesRegex(DataError, r"none/sampling\.json: No such file.* \(distill_draft\.py sample writes it\)"):
            pieces.description(str(self.folder / "none"))

    def test_other_files_are_no_pieces(self):
        self.written()
        for name in ("piece-00005.npz.new", "piece-1.npz", "apiece-00006.npz", "sampling.json"):
            (self.folder / name).write_bytes(b"")
        self.assertEqual(pieces.numbers(str(self.folder)), [4])


class Tensors(WithFolder):
    def test_bf16_rounds_to_nearest_and_ties_to_even(self):
        values = numpy.array([1.0, 1 + 2 ** -8, 1 + 3 * 2 ** -8, 1 + 2 ** -8 + 2 ** -16, -3.5, 0.0], "<f4")
        wanted = numpy.array([1.0, 1.0, 1 + 2 ** -6, 1 + 2 ** -7, -3.5, 0.0], "<f4")
        self.assertEqual(tensors.bf16_bytes(values), (wanted.view("<u4") >> 16).astype("<u2").tobytes())

    def test_a_draft_gets_the_embedding_of_its_target_as_bf16(self):
        import llama_folder
        config = {"hidden_size": 2, "vocab_size": 3, "tie_word_embeddings": False}
        table = numpy.array([[1, 2], [3, 4], [5, 1 + 2 ** -9]], "<f4")
        source, kept, out = (str(self.folder / name) for name in ("source", "kept", "out"))
        llama_folder.write_folder(source, config, {name: ((3, 2), (table * factor).tobytes()) for name, factor in
                                                   ((tensors.EMBEDDING, 1), (tensors.HEAD, 2), ("other", 3))})
        tensors.write_trained(kept, config, {"model.norm.weight": ((2,), b"\x80\x3f\x00\x40")})
        tensors.put_together(kept, source, out)
        self.assertEqual(sorted(os.listdir(out)), ["config.json", "model.safetensors"])
        table[2, 1] = 1
        for name, wanted in ((tensors.EMBEDDING, table), (tensors.HEAD, 2 * table), ("model.norm.weight", [1, 2])):
            numpy.testing.assert_array_equal(tensors.read(out, name), wanted)
        with self.assertRaisesRegex(DataError, "out: no other in its 1 safetensors files"):
            tensors.read(out, "other")
        tensors.write_trained(kept, dict(config, vocab_size=4), {})
        with self.assertRaisesRegex(DataError, "source: vocab_size is 3, the draft was trained for 4"):
            tensors.put_together(kept, source, out)

    def test_matrices_are_kept_as_integers(self):
        import llama_folder
        source, kept, out = (str(self.folder / name) for name in ("source", "kept", "out"))
        config = {"hidden_size": 2, "vocab_size": 3, "tie_word_embeddings": True}
        table = numpy.zeros((3, 2), "<f4")
        llama_folder.write_folder(source, config, {tensors.EMBEDDING: (table.shape, table.tobytes())})
        values = numpy.array([[127, -64, 0.6], [0, 0, 0], [0.01, -0.02, 0.015]], "<f4")
        content = tensors.as_integers("m", values)
        tensors.write_trained(kept, config, content)
        self.assertEqual(tensors.find(kept, "m"), ("I8", (3, 3), bytes([127, 256 - 64, 1, 0, 0, 0, 63, 256 - 127, 95])))
        wanted = numpy.array([[127, -64, 1], [0, 0, 0], [0.02 * 63 / 127, -0.02, 0.02 * 95 / 127]])
        numpy.testing.assert_allclose(tensors.read(kept, "m"), wanted, rtol=1e-6)
        tensors.put_together(kept, source, out)
        self.assertEqual(tensors.find(out, "m")[:2], ("BF16", (3, 3)))
        numpy.testing.assert_allclose(tensors.read(out, "m"), wanted, rtol=2 ** -8)
        with self.assertRaisesRegex(DataError, "out: no m_scale in its 1 safetensors files"):
            tensors.find(out, "m_scale")
        tensors.write_trained(kept, config, content | {"m_scale": ((2,), bytes(8), "F32")})
        with self.assertRaisesRegex(DataError, r"kept: m is \[3, 3\], m_scale \[2\]: expected one scale for each row"):
            tensors.put_together(kept, source, out)

    def test_a_draft_may_have_some_rows_of_the_head(self):
        import llama_folder
        source, kept, out = (str(self.folder / name) for name in ("source", "kept", "out"))
        table = numpy.arange(10, dtype="<f4").reshape(5, 2)
        for tied in (True, False):
            config = {"hidden_size": 2, "vocab_size": 5, "tie_word_embeddings": tied}
            llama_folder.write_folder(source, config, {tensors.EMBEDDING: ((5, 2), table.tobytes()),
                                                       tensors.HEAD: ((5, 2), (2 * table).tobytes())})

            def keep(distances, **changes):
                content = {"model.norm.weight": ((2,), b"\x80\x3f\x00\x40"),
                           tensors.HEAD_IDS: ((len(distances),), numpy.array(distances, "<i8").tobytes(), "I64")}
                tensors.write_trained(kept, config | {"draft_vocab_size": 3} | changes, content)

            keep([0, 1, 2])
            tensors.put_together(kept, source, out)
            written = json.loads(pathlib.Path(out, "config.json").read_text())
            self.assertEqual(written, config | {"draft_vocab_size": 3, "tie_word_embeddings": False})
            numpy.testing.assert_array_equal(tensors.read(out, tensors.EMBEDDING), table)
            numpy.testing.assert_array_equal(tensors.read(out, tensors.HEAD), (1 if tied else 2) * table[[0, 2, 4]])
            numpy.testing.assert_array_equal(tensors.read(out, "model.norm.weight"), [1, 2])
            self.assertEqual(tensors.find(out, tensors.HEAD_IDS), ("I64", (3,), numpy.array([0, 1, 2], "<i8").tobytes()))
            for distances in ([-1, 1, 2], [0, 1, 3], [0, 0, -1], [1, 0, 2]):
                keep(distances)
                with self.assertRaisesRegex(DataError, "kept: d2t gives no ascending ids of a vocabulary of 5, fewer than all"):
                    tensors.put_together(kept, source, out)
            keep([0, 0, 0, 0, 0], draft_vocab_size=5)
            with self.assertRaisesRegex(DataError, "fewer than all"):
                tensors.put_together(kept, source, out)
            keep([0, 1])
            with self.assertRaisesRegex(DataError, r"kept: d2t is I64 \[2\], expected I64 \[3\] by draft_vocab_size"):
                tensors.put_together(kept, source, out)
            tensors.write_trained(kept, config | {"draft_vocab_size": 3}, {})
            with self.assertRaisesRegex(DataError, "kept: no d2t in its 1 safetensors files"):
                tensors.put_together(kept, source, out)

    def test_the_ids_of_a_head_are_written_both_ways(self):
        content = tensors.ids_of_head(numpy.array([2, 3, 7]), 9)
        self.assertEqual(content["d2t"], ((3,), numpy.array([2, 2, 5], "<i8").tobytes(), "I64"))
        self.assertEqual(content["t2d"], ((9,), bytes([0, 0, 1, 1, 0, 0, 0, 1, 0]), "BOOL"))
        self.assertEqual(list(tensors.ids_of_head(numpy.array([2, 3, 7]))), ["d2t"])

    def test_a_file_that_ends_early_is_named(self):
        import llama_folder
        llama_folder.write_folder(str(self.folder), {}, {"a": ((2,), b"12345678")})
        path = self.folder / "model.safetensors"
        for size, reason in ((-3, "ends within a"), (20, "is no safetensors file")):
            path.write_bytes(path.read_bytes()[:size])
            with self.assertRaisesRegex(DataError, f"{path}: {reason}"):
                tensors.read(str(self.folder), "a")


class StateLayers(unittest.TestCase):
    def test_they_are_those_of_published_drafts(self):
        self.assertEqual([eagle3_layers(count) for count in (32, 36, 80)], [[1, 15, 28], [1, 17, 32], [1, 39, 76]])
        self.assertEqual([dflash_layers(count) for count in (36, 32)], [[1, 9, 17, 25, 33], [1, 8, 15, 22, 29]])

    def test_a_small_target_has_each_of_them_once(self):
        for count in range(1, 12):
            for layers in (eagle3_layers(count), dflash_layers(count)):
                self.assertEqual(layers, sorted(set(layers)))
                self.assertTrue(0 <= layers[0] and layers[-1] <= max(0, count - 2), (count, layers))


class Arguments(WithFolder):
    def run_tool(self, *arguments):
        errors = io.StringIO()
        with unittest.mock.patch.object(sys, "argv", ["distill_draft.py", *map(str, arguments)]), contextlib.redirect_stderr(errors), \
                unittest.mock.patch.object(signal, "signal"), self.assertRaises(SystemExit) as end:
            distill_draft.main()
        return end.exception.code, errors.getvalue()

    def test_a_missing_module_is_named(self):
        for module, command in itertools.product(("numpy", "torch", "tokenizers", "jinja2"), ("sample", "train", "teach")):
            there = {"numpy", "torch", "tokenizers", "jinja2"} - {module}
            arguments = [command, "--target", self.target, "--out", self.folder / "out"] + ["--data", "d"] * (command == "train")
            if module not in {"sample": ("numpy",), "train": ("numpy", "torch"), "teach": ("numpy", "torch", "tokenizers", "jinja2")}[command]:
                continue
            with unittest.mock.patch.object(importlib.util, "find_spec", side_effect=lambda name, there=there: name if name in there else None):
                status, errors = self.run_tool(*arguments)
            self.assertEqual((status, errors), (2, f"distill_draft: needs the Python module {module}: pip install {module} (see --help)\n"))

    def test_products_are_in_bf16_where_something_multiplies_it(self):
        cpuinfo = self.folder / "cpuinfo"
        for flags, dtype in (("fma avx2", "f32"), ("avx2 avx512f avx512_bf16", "bf16"), ("avx512_bf16_not", "f32"), ("amx_bf16 amx_tile", "bf16"),
                             ("asimd bf16", "bf16")):
            cpuinfo.write_text(f"processor\t: 0\nflags\t\t: fpu {flags} sse\n\nprocessor\t: 1\n")
            self.assertEqual(tool_arguments.dtype_of("auto", "cpu", cpuinfo), dtype, flags)
        self.assertEqual(tool_arguments.dtype_of("auto", "cpu", self.folder / "missing"), "f32")
        self.assertEqual(tool_arguments.dtype_of("auto", "cuda:1", cpuinfo), "bf16")
        self.assertEqual(tool_arguments.dtype_of("bf16", "cpu", self.folder / "missing"), "bf16")

    def test_values_that_make_no_sense_are_refused(self):
        for command, option, value, reason in (("sample", "--tokens", "0", "expected more than 0, got 0"),
                                               ("train", "--minutes", "-1", "expected more than 0"),
                                               ("train", "--layers", "1,x", "expected numbers such as 0,1,28,29, got '1,x'")):
            arguments = [command, "--target", self.target, "--out", "o"] + ["--data", "d"] * (command == "train")
            status, errors = self.run_tool(*arguments, option, value)
            self.assertEqual(status, 2)
            self.assertIn(f"argument {option}: ", errors)
            self.assertIn(reason, errors)

    def test_prompts_and_targets_that_cannot_be_read_are_named(self):
        path = self.folder / "prompts.jsonl"
        for data, reason in ((b"{\n", ":1: expected an object with prompt"), (b'\n{"prompt": 3}\n', ":2: prompt: expected a text"),
                             (b"", ": no prompts"), (b"\xff", ": is not UTF-8")):
            path.write_bytes(data)
            status, errors = self.run_tool("sample", "--target", self.target, "--out", self.folder / "out", "--prompts", path)
            self.assertEqual((status, errors), (2, f"distill_draft: {path}{reason}\n"))
        path.write_text('{"prompt": " "}\n')
        self.assertIn(":1: prompt: expected a text\n", self.run_tool("sample", "--target", self.target, "--out", "o", "--prompts", path)[1])
        path.write_text('{"prompt": "a"}\n')
        status, errors = self.run_tool("sample", "--target", self.target, "--out", self.folder / "out", "--texts", path)
        self.assertEqual((status, errors), (2, f"distill_draft: {path}:1: expected an object with text\n"))
        status, errors = self.run_tool("sample", "--target", self.folder / "none", "--out", self.folder / "out")
        self.assertEqual((status, errors), (2, f"distill_draft: {self.folder / 'none/config.json'}: No such file or directory\n"))
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main()
