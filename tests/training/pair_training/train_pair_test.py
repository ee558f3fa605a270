#!/usr/bin/env python3
"""training/train_pair.py as far as it needs no PyTorch: rows, packs, batches, written folders, refused arguments.
with_torch.py checks the training itself."""
import collections
import contextlib
import importlib.util
import io
import json
import pathlib
import re
import struct
import sys
import tempfile
import unittest
import unittest.mock

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "training"), str(ROOT / "deploy/models")]
import llama_folder  # noqa: E402
import train_pair  # noqa: E402
from draft_distillation import tensors  # noqa: E402
from pair_training import data, tokenizer, variation  # noqa: E402

QUOTED = r'[=<>] (?:"([^"]*)"|(\S+))'


class WithFolder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def written(self, content):
        path = self.folder / "rows.jsonl"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)


class ReadRows(WithFolder):
    def test_gives_prompts_and_completions(self):
        path = self.written('{"prompt": "a\\nb", "completion": "c", "table": 1}\n{"prompt": "d", "completion": "e"}\n')
        self.assertEqual(data.read_rows(path), [("a\nb", "c"), ("d", "e")])

    def test_refuses_what_is_no_row_and_names_the_line(self):
        good = '{"prompt": "a", "completion": "b"}\n'
        for line, reason in (("{", "JSONDecodeError"), ("[]", "TypeError"), ('{"prompt": "a"}', "KeyError('completion')"),
                             ('{"prompt": 1, "completion": "b"}', "expected texts"), ('{"prompt": "", "completion": "b"}', "expected texts")):
            path = self.written(good + line + "\n" + good)
            with self.subTest(line), self.assertRaises(data.DataError) as caught:
                data.read_rows(path)
            self.assertTrue(str(caught.exception).startswith(f"{path}:2: "), caught.exception)
            self.assertIn(reason, str(caught.exception))

    def test_refuses_files_without_rows(self):
        for path, reason in ((str(self.folder / "none"), "No such file"), (self.written(""), "no examples")):
            with self.subTest(reason), self.assertRaisesRegex(data.DataError, f"{path}: {reason}"):
                data.read_rows(path)
        with self.assertRaisesRegex(data.DataError, "is not UTF-8"):
            data.read_rows(self.written(b'{"prompt": "\xff"}\n'))


class CopiedCase(unittest.TestCase):
    def check(self, prompt, completion, expected):
        self.assertEqual(data.copied_case(prompt, completion, QUOTED), expected)

    def test_takes_the_spelling_of_the_prompt(self):
        self.check("who is Ken lazebnik?", ' SELECT a WHERE b = "ken LaZebnik" AND c = KEN', ' SELECT a WHERE b = "Ken lazebnik" AND c = Ken')

    def test_leaves_what_the_prompt_has_as_it_is_or_not_at_all(self):
        for completion in (' WHERE b = "NEW York"', " WHERE b = Boston"):
            self.check("new york or NEW York?", completion, completion)

    def test_takes_the_last_occurrence(self):
        self.check("columns: Paris\nquestion: in pariS?", " WHERE city = PARIS", " WHERE city = pariS")

    def test_touches_values_only(self):
        self.check("select: a where", " SELECT a WHERE a = A", " SELECT a WHERE a = a")

    def test_leaves_prompts_alone_whose_lower_case_is_longer(self):
        self.check("İ is Ankara", " WHERE c = ANKARA", " WHERE c = ANKARA")


def letters(text):
    return [3 + ord(letter) for letter in text]


class Packs(unittest.TestCase):
    def encoded(self, rows, context=100):
        return data.encode_rows(letters, rows, context)

    def test_rows_with_a_common_first_line_share_it(self):
        groups, tokens, left_out = self.encoded([("ab\nx", "1"), ("c\ny", "22"), ("ab\nzz", "3")])
        self.assertEqual(groups, [([data.BOS] + letters("ab\n"), [(letters("x"), letters("1") + [data.EOS], 0),
                                                                  (letters("zz"), letters("3") + [data.EOS], 5)]),
                                  ([data.BOS] + letters("c\n"), [(letters("y"), letters("22") + [data.EOS], 2)])])
        self.assertEqual((tokens, left_out), (7, 0))

    def test_a_prompt_of_one_line_shares_nothing(self):
        for prompt in ("ab", "ab\n"):
            self.assertEqual(self.encoded([(prompt, "c")])[0], [([data.BOS], [(letters(prompt), letters("c") + [data.EOS], 0)])])

    def test_rows_longer_than_the_context_are_left_out_and_have_no_tokens(self):
        groups, tokens, left_out = self.encoded([("a\nb", "c" * 9), ("a\nb", "c" * 8), ("d\ne", "f" * 20)], context=13)
        self.assertEqual([(prefix, [row.first for row in rows]) for prefix, rows in groups], [([data.BOS] + letters("a\n"), [0])])
        self.assertEqual((tokens, left_out), (9, 2))

    def test_an_epoch_has_each_row_once_and_keeps_its_limits(self):
        rows = [(f"{'t' * (table % 7)}{table}\n{'q' * (question % 11)}?", "c" * (1 + question % 5))
                for table in range(300) for question in range(table % 9)]
        groups, _, _ = self.encoded(rows)
        wanted = collections.Counter((tuple(prefix), tuple(row.prompt), row.first) for prefix, members in groups for row in members)
        orders = []
        for seed in (0, 0, 1):
            batches = data.epoch_batches(groups, 200, 60, seed)
            orders.append([row.first for batch in batches for pack in batch for row in pack.rows])
            self.assertEqual(wanted, collections.Counter((tuple(pack.prefix), tuple(row.prompt), row.first)
                                                         for batch in batches for pack in batch for row in pack.rows))
            for batch in batches:
                self.assertLessEqual(len(batch) * max(pack.length for pack in batch), 200)
                for pack in batch:
                    self.assertEqual(pack.length, len(pack.prefix) + sum(len(row.prompt) + len(row.completion) for row in pack.rows))
                    self.assertLessEqual(pack.length, 60)
        self.assertEqual(orders[0], orders[1])
        self.assertNotEqual(orders[0], orders[2])

    def test_what_exceeds_a_limit_is_alone(self):
        groups, _, _ = self.encoded([("a\n" + "q" * 30, "c"), ("a\n" + "q" * 30, "d"), ("a\nq", "e")])
        batches = data.epoch_batches(groups, 10, 10, 0)
        self.assertEqual(sorted(len(pack.rows) for batch in batches for pack in batch), [1, 1, 1])
        self.assertEqual([len(batch) for batch in batches], [1, 1, 1])


class Folder(WithFolder):
    def test_is_written_in_bf16(self):
        config = llama_folder.config(8, 1, 2, 2, 16, 32, 64, torch_dtype="bfloat16")
        llama_folder.write_folder(str(self.folder), config, {"a": ((2, 3), bytes(range(12))), "b": ((1,), b"xy")}, "BF16")
        self.assertEqual(json.loads((self.folder / "config.json").read_text())["torch_dtype"], "bfloat16")
        content = (self.folder / "model.safetensors").read_bytes()
        size, = struct.unpack("<Q", content[:8])
        header = json.loads(content[8:8 + size])
        self.assertEqual((header["a"], header["b"]), ({"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
                                                      {"dtype": "BF16", "shape": [1], "data_offsets": [12, 14]}))
        self.assertEqual(content[8 + size:], bytes(range(12)) + b"xy")

    def test_keeps_the_old_file_when_writing_fails(self):
        llama_folder.write_folder(str(self.folder), {}, {"a": ((1,), b"1234")})
        before = (self.folder / "model.safetensors").read_bytes()
        with self.assertRaises(TypeError):
            llama_folder.write_folder(str(self.folder), {}, {"a": ((1,), b"5678"), "b": ((), [None])})
        self.assertEqual((self.folder / "model.safetensors").read_bytes(), before)


class Varied(unittest.TestCase):
    ROWS = [(f"columns: city, country {n}, name, year\nquestion: who of Team {n % 40} came in {1900 + n}?\nsql:",
             f' SELECT name WHERE country {n} = "Team {n % 40}" AND year = {1900 + n}') for n in range(200)]

    def setUp(self):
        self.variation = variation.Variation(self.ROWS, QUOTED)

    def test_an_epoch_is_as_its_seed_says_and_has_every_row(self):
        first, again, other = (self.variation.epoch(seed) for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertEqual(len(first), len(self.ROWS))

    def test_columns_that_the_completion_names_stay_and_others_come_and_go(self):
        lost = added = 0
        for n, (prompt, completion) in enumerate(self.variation.epoch(3)):
            items = prompt.partition("\n")[0].removeprefix("columns: ").split(", ")
            self.assertEqual(items, sorted(items))
            self.assertEqual(len(items), len(set(items)))
            self.assertLessEqual({f"country {n}", "name", "year"}, set(items))
            lost += "city" not in items
            added += len(set(items) - {"city", f"country {n}", "name", "year"})
        self.assertIn(lost, range(10, 60))   # of 200 rows 70 % have varied lists, which lose a quarter of what is not named
        self.assertIn(added, range(15, 60))

    def test_values_change_in_prompt_and_completion_to_others_of_a_like_place(self):
        changed = 0
        for n, (prompt, completion) in enumerate(self.variation.epoch(4)):
            team, year = re.fullmatch(rf' SELECT name WHERE country {n} = "Team (\d+)" AND year = (\d+)', completion).groups()
            self.assertTrue(prompt.endswith(f"\nquestion: who of Team {team} came in {year}?\nsql:"), prompt)
            self.assertIn(int(year), range(1900, 2100))
            changed += int(year) != 1900 + n
        self.assertIn(changed, range(50, 110))

    def varied(self, prompt, completion):
        """A row among the others, in twenty epochs."""
        rows = variation.Variation([*self.ROWS, (prompt, completion)], QUOTED)
        return [rows.epoch(seed)[-1] for seed in range(20)]

    def test_what_the_rest_of_the_prompt_does_not_have_once_stays(self):
        for row in (("no list\nwho?", ' SELECT a WHERE b = "x y"'), ("one line", " c = 4"),
                    ("no list\n1999 or 1999?", " SELECT a WHERE b = 1999"), ("no list\nin 1999s?", " SELECT a WHERE b = 1999")):
            self.assertEqual(self.varied(*row), [row] * 20)

    def test_a_value_within_another_one_stays(self):
        row = ("no list\nwho won in May 2005?", ' SELECT a WHERE b = "May 2005" AND year = 2005')
        self.assertEqual(self.varied(*row), [row] * 20)

    def test_a_value_is_not_sought_in_what_replaced_another(self):
        for prompt, completion in self.varied("no list\nthe Old Boys?", ' SELECT a WHERE b = "Old Boys" AND s = 5'):
            team = re.fullmatch(r' SELECT a WHERE b = "(.*)" AND s = 5', completion)[1]
            self.assertEqual(prompt, f"no list\nthe {team}?")

    def test_an_empty_value_is_none(self):
        row = ("no list\nthe title Foreign?", ' SELECT a WHERE title = ""Foreign""')
        self.assertEqual(self.varied(*row), [row] * 20)
        other = variation.Variation([*self.ROWS, row], QUOTED).epoch(1)
        self.assertFalse([completion for _, completion in other[:-1] if '""' in completion or '"= ' in completion])


class FakeTokenizer:
    """Of the tokens of these texts, by spaces."""

    def __init__(self, path):
        self.vocab = json.loads(pathlib.Path(path).read_text())["model"]["vocab"]

    def encode(self, text):
        return [self.vocab[token] for token in text.split()]


class Cut(WithFolder):
    LETTERS = "abcdexy"
    MERGES = [["a", "b"], ["c", "d"], ["ab", "cd"], ["x", "y"], ["a", "bcd"], ["ab", "e"]]  # bcd does not exist
    HIDDEN = 8

    def setUp(self):
        super().setUp()
        self.source = self.folder / "source"
        tokens = ["<0>", "<1>", "<2>", *self.LETTERS, "ab", "cd", "abcd", "xy", "abe"]
        self.content = {"pre_tokenizer": {"type": "ByteLevel"}, "added_tokens": [{"id": i, "content": token} for i, token in enumerate(tokens[:3])] + [{"id": 9, "content": "y"}],
                        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)},
                                  "merges": [" ".join(merge) for merge in self.MERGES]}}
        self.tokens = tokens
        config = llama_folder.config(self.HIDDEN, 3, 2, 1, 12, len(tokens), 64, theta=500.0)
        random, self.values = numpy.random.default_rng(1), {}
        for name, shape in llama_folder.tensor_shapes(self.HIDDEN, 3, 2, 1, 12, len(tokens)).items():
            self.values[name] = random.integers(-9, 9, shape).astype("<f4")
        llama_folder.write_folder(str(self.source), config, {name: (v.shape, v.tobytes()) for name, v in self.values.items()})
        (self.source / "tokenizer.json").write_text(json.dumps(self.content))
        self.rows = self.written('{"prompt": "abcd a\\nab ab", "completion": "abcd"}\n{"prompt": "abcd a\\nxy cd", "completion": "abe"}\n')

    def cut(self, *options, status=0):
        errors = io.StringIO()
        command = ["train_pair.py", "cut", "--data", self.rows, "--source", str(self.source), "--out", str(self.folder / "out"), *map(str, options)]
        with unittest.mock.patch.object(sys, "argv", command), contextlib.redirect_stderr(errors), \
                unittest.mock.patch.object(tokenizer, "Tokenizer", FakeTokenizer), \
                unittest.mock.patch.object(train_pair, "need_modules"):
            if status == 0:
                train_pair.main()
            else:
                with self.assertRaises(SystemExit) as end:
                    train_pair.main()
                self.assertEqual(end.exception.code, status)
        return errors.getvalue()

    def test_keeps_the_most_frequent_tokens_with_all_they_are_merged_from(self):
        # abcd twice (its line is in both rows and counts once, then a completion), ab twice: abcd brings ab and cd.
        self.cut("--vocab", 13, "--layers", "0,2", "--context", 48)
        kept = ["<0>", "<1>", "<2>", *self.LETTERS, "ab", "cd", "abcd"]
        out = self.folder / "out"
        written = json.loads((out / "tokenizer.json").read_text())
        self.assertEqual(written["model"]["vocab"], {token: i for i, token in enumerate(kept)})
        self.assertEqual(written["model"]["merges"], [["a", "b"], ["c", "d"], ["ab", "cd"]])
        self.assertEqual(written["added_tokens"], self.content["added_tokens"][:3])
        config = json.loads((out / "config.json").read_text())
        self.assertEqual([config[name] for name in ("vocab_size", "num_hidden_layers", "num_key_value_heads", "rope_theta",
                                                    "max_position_embeddings")], [13, 2, 1, 500.0, 48])
        more = json.loads((out / "tokenizer_config.json").read_text())
        self.assertEqual((more["bos_token"], more["eos_token"], more["add_bos_token"]), ("<1>", "<2>", True))
        numpy.testing.assert_array_equal(tensors.read(str(out), tensors.EMBEDDING), self.values[tensors.EMBEDDING][:13])
        for place, layer in enumerate((0, 2)):
            for part in ("self_attn.k_proj", "mlp.down_proj", "input_layernorm"):
                numpy.testing.assert_array_equal(tensors.read(str(out), f"model.layers.{place}.{part}.weight"),
                                                 self.values[f"model.layers.{layer}.{part}.weight"])

    def test_tokens_left_out_close_the_ranks(self):
        self.rows = self.written('{"prompt": "xy xy", "completion": "abe"}\n')
        self.cut("--vocab", 11)
        vocab = json.loads((self.folder / "out/tokenizer.json").read_text())["model"]["vocab"]
        self.assertEqual(vocab["xy"], 10)
        numpy.testing.assert_array_equal(tensors.read(str(self.folder / "out"), tensors.EMBEDDING)[10],
                                         self.values[tensors.EMBEDDING][self.tokens.index("xy")])

    def test_layers_may_come_from_a_distilled_draft(self):
        trained = self.folder / "trained"
        names = [name for name in self.values if name != tensors.EMBEDDING and ".1." not in name and ".2." not in name]
        content = {}
        for name in names:
            values = self.values[name] / 2
            content.update(tensors.as_integers(name, values) if values.ndim == 2 else {name: (values.shape, tensors.bf16_bytes(values))})
        tensors.write_trained(str(trained), llama_folder.config(self.HIDDEN, 1, 2, 1, 12, len(self.tokens), 64, theta=500.0), content)
        self.cut("--vocab", 13, "--distilled", trained)
        for name in names:
            numpy.testing.assert_allclose(tensors.read(str(self.folder / "out"), name), self.values[name] / 2, rtol=0.01, atol=0.03)

    def test_what_does_not_fit_is_named(self):
        where = self.source / "tokenizer.json"
        for vocab, reason in ((99, "the text uses 15 of its ids, fewer than the 99 asked for"),
                              (9, "10 of its ids are single characters or special, more than the 9 asked for")):
            self.assertEqual(self.cut("--vocab", vocab, status=2), f"train_pair: {where}: {reason}\n")
        self.assertIn("source: has no layer 3, only 0 to 2\n", self.cut("--layers", "0,3", status=2))
        for layers in ("0,x", "0,-1", ""):
            self.assertIn(f"argument --layers: expected numbers such as 0,1,28,29, got '{layers}'", self.cut(f"--layers={layers}", status=2))
        broken = [{"pre_tokenizer": {"type": "Metaspace"}}, {"added_tokens": []}, {"added_tokens": None}, {"added_tokens": [{"id": 0}] * 3}]
        broken += [{"model": self.content["model"] | change} for change in ({"type": "Unigram"}, {"vocab": [1]}, {"merges": [["a", "b", "c"]]})]
        for change in broken:
            where.write_text(json.dumps(self.content | change))
            self.assertEqual(self.cut("--vocab", 13, status=2), f"train_pair: {where}: expected the tokenizer.json of a byte-level BPE whose "
                                                                "first three added tokens have the ids 0, 1 and 2\n")
        where.unlink()
        self.assertEqual(self.cut("--vocab", 13, status=2), f"train_pair: {where}: No such file or directory\n")
        self.assertFalse((self.folder / "out").exists())

    def test_models_that_do_not_fit_are_named(self):
        path = self.source / "config.json"
        config = json.loads(path.read_text())
        unlike = "expected a tied head, rms_norm_eps 1e-5 and heads that fill hidden_size"
        for change, reason in (({"model_type": "opt"}, "model_type is 'opt', expected 'llama'"), ({"tie_word_embeddings": False}, unlike),
                               ({"rms_norm_eps": 1e-6}, unlike), ({"rope_scaling": {"type": "linear", "factor": 2}}, "has rope_scaling, which this tool does not serve"),
                               ({"model_type": "qwen3"}, "model_type is 'qwen3', expected 'llama'"), ({"head_dim": 8}, unlike), ({"vocab_size": None}, "has no 'vocab_size'")):
            path.write_text(json.dumps({name: value for name, value in (config | change).items() if value is not None}))
            self.assertEqual(self.cut("--vocab", 13, status=2), f"train_pair: {path}: {reason}\n")
        path.write_text("[")
        self.assertRegex(self.cut("--vocab", 13, status=2), rf"^train_pair: {path}: Expecting value.*\n$")
        path.write_text(json.dumps(dict(config, num_hidden_layers=4)))
        self.assertIn("source: no model.layers.3.input_layernorm.weight in its 1 safetensors files\n", self.cut("--vocab", 13, status=2))
        path.write_text(json.dumps(config))
        trained = str(self.folder / "trained")
        tensors.write_trained(trained, dict(config, vocab_size=99), {})
        self.assertEqual(self.cut("--vocab", 13, "--distilled", trained, status=2),
                         f"train_pair: {trained}: vocab is 99, {self.source} has {len(self.tokens)}\n")
        (self.folder / "out").mkdir()
        self.assertEqual(self.cut("--vocab", 13, status=2), f"train_pair: {self.folder / 'out'}: exists already\n")


class TokenizerFiles(WithFolder):
    def test_are_copied_with_what_belongs_to_them(self):
        for name, more, wanted in (("spm.model", [], ["tokenizer.model"]), ("tokenizer.json", [], ["tokenizer.json"]),
                                   ("tokenizer.json", ["tokenizer_config.json"], ["tokenizer.json", "tokenizer_config.json"])):
            with tempfile.TemporaryDirectory(dir=self.folder) as source, tempfile.TemporaryDirectory(dir=self.folder) as out:
                for file in [name, *more]:
                    pathlib.Path(source, file).write_text(file)
                for _ in range(2):
                    tokenizer.copy(f"{source}/{name}", out)
                self.assertEqual(sorted(path.name for path in pathlib.Path(out).iterdir()), wanted)
                tokenizer.copy(f"{out}/{wanted[0]}", out)  # onto itself

    def test_of_a_folder_is_the_one_that_the_server_takes(self):
        with self.assertRaisesRegex(data.DataError, "has no tokenizer, expected tokenizer.json or tokenizer.model"):
            tokenizer.file_in(str(self.folder))
        for name in ("tokenizer.model", "tokenizer.json"):
            (self.folder / name).write_text("")
            self.assertEqual(tokenizer.file_in(str(self.folder)), str(self.folder / name))


class Arguments(WithFolder):
    def run_tool(self, *arguments):
        errors = io.StringIO()
        with unittest.mock.patch.object(sys, "argv", ["train_pair.py", *arguments]), contextlib.redirect_stderr(errors), \
                self.assertRaises(SystemExit) as end:
            train_pair.main()
        return end.exception.code, errors.getvalue()

    def test_bad_data_is_told_before_a_missing_module(self):
        path = self.written("no rows\n")
        with unittest.mock.patch.object(importlib.util, "find_spec", return_value=None):
            status, errors = self.run_tool("model", "--data", path, "--tokenizer", "t", "--out", str(self.folder / "out"))
        self.assertEqual(status, 2)
        self.assertRegex(errors, rf"^train_pair: {path}:1: expected an object with prompt and completion: .*\n$")

    def test_a_missing_module_is_named(self):
        path = self.written('{"prompt": "a", "completion": "b"}\n')
        with unittest.mock.patch.object(importlib.util, "find_spec", side_effect=lambda name: None if name == "torch" else name):
            status, errors = self.run_tool("pair", "--data", path, "--out", str(self.folder / "out"))
        self.assertEqual((status, errors), (2, "train_pair: needs the Python module torch: pip install torch (see --help)\n"))
        self.assertFalse((self.folder / "out").exists())

    def test_rows_cannot_vary_without_a_pattern_of_values(self):
        path = self.written('{"prompt": "a", "completion": "b"}\n')
        status, errors = self.run_tool("model", "--data", path, "--tokenizer", "t", "--out", "o", "--vary")
        self.assertEqual((status, errors), (2, "train_pair: --vary: needs --copy-case, the pattern of values\n"))

    def test_there_are_no_variations_of_rows_that_do_not_vary(self):
        path = self.written('{"prompt": "a", "completion": "b"}\n')
        status, errors = self.run_tool("distill", "--data", path, "--target", "t", "--out", "o", "--variations", "2")
        self.assertEqual((status, errors), (2, "train_pair: --variations: needs --vary\n"))

    def test_the_shape_is_that_of_the_start(self):
        path = self.written('{"prompt": "a", "completion": "b"}\n')
        with unittest.mock.patch.object(train_pair, "need_modules"), unittest.mock.patch.dict(
                sys.modules, {"pair_training.comparing": unittest.mock.Mock(), "pair_training.training": unittest.mock.Mock(TrainingError=Exception)}):
            status, errors = self.run_tool("model", "--data", path, "--tokenizer", "t", "--out", "o", "--start", "s", "--layers", "2")
        self.assertEqual((status, errors), (2, "train_pair: --layers: the shape is that of --start\n"))

    def test_values_that_make_no_sense_are_refused(self):
        for option, value, reason in (("--minutes", "0", "expected more than 0, got 0"), ("--batch-tokens", "x", "invalid int value"),
                                      ("--copy-case", "(", "is no regular expression"), ("--processes", "-1", "expected more than 0")):
            status, errors = self.run_tool("model", "--data", "d", "--tokenizer", "t", "--out", "o", option, value)
            self.assertEqual(status, 2)
            self.assertIn(f"argument {option}: ", errors)
            self.assertIn(reason, errors)


if __name__ == "__main__":
    unittest.main()
