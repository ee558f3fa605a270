#!/usr/bin/env python3
"""training/train_pair.py with PyTorch: packs give what single rows give, a training goes on after an interruption, a draft comes near
its target. Run by hand where torch, numpy, sentencepiece and tokenizers are installed; takes about five minutes."""
import json
import math
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOOL = ROOT / "training/train_pair.py"
sys.path[:0] = [str(ROOT / "training"), str(ROOT / "deploy/models")]
import torch  # noqa: E402
from pair_training import data, model, teacher, training  # noqa: E402
from pair_training.batch import Batch  # noqa: E402
from pair_training.shape import shape_of  # noqa: E402

SHAPE = dict(hidden=32, layers=2, heads=2, kv_heads=1, ffn=48, vocab=64, context=64, theta=10000.0)


class Packing(unittest.TestCase):
    def setUp(self):
        source = random.Random(3)
        self.llama = model.Llama(SHAPE, "cpu")
        self.llama.initialise(1)

        def ids(count):
            return [source.randrange(3, 64) for _ in range(count)]

        first, self.groups = 0, []
        for _ in range(5):
            rows = []
            for _ in range(3):
                rows.append(data.Row(ids(source.randrange(1, 6)), ids(source.randrange(1, 5)), first))
                first += len(rows[-1].completion)
            self.groups.append(([data.BOS] + ids(source.randrange(0, 7)), rows))

    def logits(self, batches, share):
        """{number of a completion's token: its logits}, {the same: the id to be predicted}"""
        rows, ids = {}, {}
        with torch.no_grad():
            for packs in batches:
                batch = Batch(packs, "cpu", share)
                logits = batch.logits(self.llama)[batch.inside]
                for number, row, following in zip(batch.tokens.tolist(), logits, batch.next[batch.inside].tolist()):
                    rows[number], ids[number] = row, following
        return rows, ids

    def test_a_row_in_a_pack_is_as_the_row_alone(self):
        packed, ids = self.logits(data.epoch_batches(self.groups, 120, 60, 0), 1)
        single, _ = self.logits(data.epoch_batches(self.groups, 1, 1, 0), 0)
        wanted = [following for _, rows in self.groups for row in rows for following in row.completion]
        self.assertEqual([ids[number] for number in sorted(ids)], wanted)
        self.assertEqual(packed.keys(), single.keys())
        for number, row in single.items():
            torch.testing.assert_close(packed[number], row, rtol=1e-4, atol=1e-4)

    def test_losses_against_a_target(self):
        p = torch.tensor([[0.5, 0.25, 0.125, 0.125], [0.7, 0.2, 0.06, 0.04]])
        q = torch.tensor([[0.5, 0.25, 0.125, 0.125], [0.2, 0.7, 0.06, 0.04]])
        most = p.topk(2)
        kl, distance = teacher.losses(q.log(), most.indices, most.values)
        torch.testing.assert_close(kl, torch.tensor([0.0, 0.5 * math.log(3.5)]), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(distance, torch.tensor([0.0, 0.5]), atol=1e-5, rtol=1e-5)

    def test_labels_have_their_weight_beside_a_target(self):
        tokens = sum(len(row.completion) for _, rows in self.groups for row in rows)
        packs = [pack for batch in data.epoch_batches(self.groups, 120, 60, 0) for pack in batch]
        batch = Batch(packs, "cpu", 0)
        nats = torch.nn.functional.cross_entropy(batch.logits(self.llama), batch.next)
        losses = []
        for weight in (0.0, 0.5):
            which = types.SimpleNamespace(llama=self.llama, args=types.SimpleNamespace(device="cpu", overlap_weight=1.0, label_weight=weight),
                                          teacher=(torch.arange(2).expand(tokens, 2), torch.full((tokens, 2), 0.5)))
            losses.append(training.Training.loss(which, packs)[0])
        torch.testing.assert_close(losses[1] - losses[0], 0.5 * nats)

    def test_a_folder_comes_back(self):
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = pathlib.Path(folder, "tokenizer.model")
            tokenizer.write_bytes(b"")
            for dtype, tolerance in (("f32", 0), ("bf16", 2 ** -8), ("int8", 0)):
                self.llama.save(folder, str(tokenizer), dtype)
                for name, value in model.load(folder, "cpu").parameters.items():
                    own = self.llama.parameters[name]
                    near = float(own.detach().abs().max()) / 253 if dtype == "int8" and own.dim() == 2 else 0
                    torch.testing.assert_close(value, own, rtol=tolerance, atol=near)


class Trainings(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        source, rows = random.Random(5), []
        for _ in range(200):
            words = source.sample(["red", "green", "blue", "black", "white", "brown"], 3)
            rows.append(json.dumps({"prompt": f"{words[0]} {words[1]}\nlast?", "completion": " " + words[1]}))
        (self.folder / "rows.jsonl").write_text("\n".join(rows) + "\n")

    def command(self, command, *options):
        return [sys.executable, "-B", str(TOOL), command, "--data", str(self.folder / "rows.jsonl"), *map(str, options)]

    def finished(self, *arguments, status=0):
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=400)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout + done.stderr

    def test_interrupted_resumed_distilled_compared(self):
        tokenizer, target, draft = self.folder / "t", self.folder / "target", self.folder / "draft"
        self.finished("tokenizer", "--out", tokenizer, "--vocab", 300)
        shape = ["--hidden", 32, "--layers", 2, "--heads", 2, "--ffn", 48, "--checkpoint-minutes", 0.02, "--progress", 1]
        training = ["model", "--tokenizer", tokenizer / "tokenizer.model", "--out", target, *shape, "--minutes", 0.2, "--processes", 2,
                    "--batch-tokens", 512, "--held-out", self.folder / "rows.jsonl"]
        self.assertIn("1 batches an epoch are too few for 2 processes: see --batch-tokens\n",
                      self.finished(*training, "--batch-tokens", 99999, status=2))
        with subprocess.Popen(self.command(*training), stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            while not (target / "checkpoint.pt").exists():
                self.assertIsNone(process.poll())
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=60), 143)
            with self.assertRaises(ProcessLookupError):  # the whole session ends
                for _ in range(600):
                    os.killpg(process.pid, 0)
                    time.sleep(0.05)
        self.assertIn("is of a training with other options", self.finished(*training, "--lr", 0.1, status=2))
        output = self.finished(*training)
        self.assertRegex(output, r"goes on after \d+ steps")
        right = float(re.findall(r"greedy exact match (\d\.\d+)", output)[-1])
        self.assertGreater(right, 0.9)
        self.assertEqual(sorted(os.listdir(target)), ["config.json", "model.safetensors", "tokenizer.model"])
        self.assertIn("is there already", self.finished(*training))
        self.finished("distill", "--target", target, "--out", draft, *shape[2:], "--hidden", 16, "--minutes", 0.2)
        overlap = float(re.search(r"overlap (\d\.\d+)", self.finished("compare", "--target", target, "--draft", draft))[1])
        self.assertGreater(overlap, 0.8)

    def small(self):
        """The folder of a model in f32 with tokenizer.json and a vocabulary of 256, and its parameters."""
        folder = self.folder / "small"
        self.finished("cut", "--source", ROOT / "deploy/demo/wikisql-target", "--layers", "0,1", "--vocab", 256, "--context", 64, "--out", folder)
        return folder, model.load(folder, "cpu").parameters

    def test_new_layers_change_nothing_until_they_are_trained(self):
        small, before = self.small()
        grown = self.folder / "grown"

        def grow(after, status=0):
            done = subprocess.run([sys.executable, "-B", str(TOOL), "grow", "--start", small, "--out", grown, "--after", after],
                                  capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, status, done.stderr)
            return done.stderr

        self.assertIn("has no layer 2, only 0 to 1", grow("2", 2))
        grow("0,0,1")
        self.assertIn("exists already", grow("0", 2))
        self.assertEqual(shape_of(grown), dict(shape_of(small), layers=5))
        after = model.load(grown, "cpu").parameters
        for name, value in before.items():
            self.assertTrue(torch.equal(after[name.replace("layers.1.", "layers.3.")], value), name)
        ids, positions = torch.randint(3, 256, (2, 20)), torch.arange(20).expand(2, 20)
        allowed = torch.ones(2, 20, 20, dtype=torch.bool).tril()
        with torch.no_grad():
            states = [model.load(folder, "cpu").hidden(ids, positions, allowed) for folder in (small, grown)]
        self.assertTrue(torch.equal(*states))
        self.finished("model", "--tokenizer", grown / "tokenizer.json", "--start", grown, "--out", self.folder / "deep", "--context", 64,
                      "--minutes", 0.2, "--batch-tokens", 512)
        trained = model.load(self.folder / "deep", "cpu").parameters
        for layer in (1, 2, 4):
            self.assertGreater(float(trained[f"model.layers.{layer}.mlp.down_proj.weight"].detach().abs().max()), 0)

    def test_the_mean_of_models(self):
        small, before = self.small()
        other, out, grown = self.folder / "other", self.folder / "mean", self.folder / "grown"

        def run(*arguments, status=0):
            done = subprocess.run([sys.executable, "-B", str(TOOL), *map(str, arguments)], capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, status, done.stderr)
            return done.stderr

        changed = model.load(small, "cpu")
        for value in changed.parameters.values():
            value.data.add_(1)
        changed.save(str(other), str(small / "tokenizer.json"), "f32")
        run("mean", "--out", out, "--save-dtype", "f32", small, other, other)
        for name, value in model.load(out, "cpu").parameters.items():
            self.assertTrue(torch.allclose(value, before[name] + 2 / 3, atol=1e-5), name)
        self.assertIn("mean: exists already", run("mean", "--out", out, small, other, status=2))
        run("grow", "--start", small, "--out", grown, "--after", 0)
        self.assertIn("grown: its shape ", run("mean", "--out", self.folder / "none", small, grown, status=2))
        self.assertFalse((self.folder / "none").exists())

    def test_frozen_layers_and_the_embedding_stay(self):
        small, before = self.small()
        for optimizer in ("muon", "adamw"):
            out = self.folder / optimizer
            options = ["model", "--tokenizer", small / "tokenizer.json", "--start", small, "--out", out, "--context", 64, "--optimizer", optimizer,
                       "--minutes", 0.2, "--batch-tokens", 512, "--processes", 2]
            self.assertIn("--frozen 2: expected 0 to 1, fewer than all layers", self.finished(*options, "--frozen", 2, status=2))
            self.finished(*options, "--frozen", 1)
            for name, value in model.load(out, "cpu").parameters.items():
                same = torch.equal(value, before[name])
                self.assertEqual(same, name.startswith(("model.embed_tokens.", "model.layers.0.")), name)

    def test_a_target_is_asked_about_several_variations(self):
        small, _ = self.small()
        rows = [json.dumps({"prompt": f"columns: a, b{number}, c\nWhich a has b {number}?", "completion": f" SELECT a WHERE b = {number}"})
                for number in range(60)]
        (self.folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
        output = self.finished("distill", "--target", small, "--start", small, "--out", self.folder / "same", "--context", 64, "--vary", "--copy-case",
                               r"= (\S+)", "--variations", 3, "--label-weight", 0.5, "--minutes", 0.2, "--batch-tokens", 512, "--lr", "1e-3")
        self.assertIn(" 180 rows", output)

    def test_a_target_starts_from_a_part_of_another_model(self):
        """That knows the words of the rows and not the task. The parts of a model in 8-bit integers and its tokenizer.json."""
        start, target = self.folder / "start", self.folder / "target"
        self.finished("cut", "--source", ROOT / "deploy/demo/wikisql-target", "--layers", "0,1", "--vocab", 256, "--context", 64, "--out", start)
        self.assertIn("has a vocabulary of 256", self.finished(
            "model", "--tokenizer", ROOT / "deploy/demo/wikisql-target/tokenizer.json", "--start", start, "--out", target, status=2))
        output = self.finished("model", "--tokenizer", start / "tokenizer.json", "--start", start, "--out", target, "--context", 64, "--lr", "2e-3",
                               "--minutes", 2, "--batch-tokens", 512, "--held-out", self.folder / "rows.jsonl", "--save-dtype", "int8")
        self.assertGreater(float(re.findall(r"greedy exact match (\d\.\d+)", output)[-1]), 0.7)
        self.assertEqual(sorted(os.listdir(target)), ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
        self.assertEqual(shape_of(target), dict(shape_of(ROOT / "deploy/demo/wikisql-target"), layers=2, vocab=256, context=64))


if __name__ == "__main__":
    unittest.main()
