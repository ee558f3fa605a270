#!/usr/bin/env python3
"""training/distill_draft.py with PyTorch: the decoder is the one of training/pair_training, the losses are those of whole distributions in the
mean, steps of Muon are PyTorch's, a training raises the overlap and goes on after an interruption. Run by hand where torch (2.9 or
later), numpy, tokenizers and jinja2 are installed; takes about seven minutes."""
import argparse
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOOL = ROOT / "training/distill_draft.py"
TARGET = ROOT / "deploy/demo/wikisql-target"
sys.path.insert(0, str(ROOT / "training"))
import numpy  # noqa: E402
import torch  # noqa: E402
import arithmetic  # noqa: E402
from draft_distillation import asking, openings, pieces, rows, sampling, teaching, tensors  # noqa: E402
from draft_distillation.chat import Chat  # noqa: E402
from draft_distillation.decoder import Cache, Decoder  # noqa: E402
from pair_training import model  # noqa: E402

CONFIG = json.loads((TARGET / "config.json").read_text())
torch.set_num_threads(1)


def conversation(ids, asked, logits):
    """As a server that lists the most likely ids would give it. logits [ids, vocabulary] of the whole text."""
    p = logits[asked - 1:-1].softmax(-1)
    top = p.topk(pieces.KEPT)
    own = torch.tensor(ids[asked:])
    return {"ids": numpy.array(ids), "asked": asked, "top": top.indices.numpy(), "top_p": top.values.numpy(),
            "own_p": p.gather(1, own[:, None])[:, 0].numpy()}


class Parts(unittest.TestCase):
    def test_the_decoder_is_that_of_pair_training(self):
        mine = Decoder(CONFIG, str(TARGET), range(CONFIG["num_hidden_layers"]), "cpu")
        other = model.load(str(TARGET), "cpu")
        table = other.parameters[tensors.EMBEDDING].data
        table.copy_(table.bfloat16())  # as the decoder keeps it
        ids = torch.randint(0, CONFIG["vocab_size"], (2, 30), generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            allowed = torch.ones(1, 30, 30, dtype=torch.bool).tril()
            wanted = other.hidden(ids, torch.arange(30).expand(2, 30), allowed)
            torch.testing.assert_close(mine.states(ids), wanted, rtol=1e-4, atol=1e-4)
            some = torch.tensor([5, 0, 77])
            torch.testing.assert_close(mine.logits(wanted, some), mine.logits(wanted)[..., some])

    def test_steps_of_muon_are_those_of_pytorch(self):
        source = torch.Generator().manual_seed(2)
        for shape in ((24, 40), (40, 24)):
            begin = torch.randn(shape, generator=source)
            of_bf16, of_f32, wanted = (begin.clone().requires_grad_() for _ in range(3))
            mine = [(of_bf16, arithmetic.Muon([of_bf16], 0.01, 0.1, "bf16")), (of_f32, arithmetic.Muon([of_f32], 0.01, 0.1, "f32"))]
            other = torch.optim.Muon([wanted], lr=0.01, weight_decay=0.1, ns_steps=4, adjust_lr_fn="match_rms_adamw")
            for _ in range(3):
                gradient = torch.randn(shape, generator=source)
                for value, optimizer in mine + [(wanted, other)]:
                    value.grad = gradient.clone()
                    optimizer.step()
            self.assertGreater(float((wanted - begin).detach().abs().mean()), 3e-3)
            torch.testing.assert_close(of_bf16, wanted, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(of_f32, wanted, rtol=0, atol=3e-4)

    def test_heads_that_share_keys(self):
        with tempfile.TemporaryDirectory() as folder:
            few, full = (Decoder(CONFIG, str(TARGET), [0], "cpu") for _ in range(2))
            dim, heads, kept = (few.shape[name] for name in ("head_dim", "heads", "kv_heads"))
            self.assertLess(kept, heads)
            for part in ("k", "v"):
                name = f"model.layers.0.self_attn.{part}_proj.weight"
                rows_of = few.parameters[name].detach().split(dim)
                full.parameters[name] = torch.cat([rows_of[head * kept // heads] for head in range(heads)])
            full.shape = dict(full.shape, kv_heads=heads)
            ids = torch.arange(3, 40)[None]
            with torch.no_grad():
                torch.testing.assert_close(few.states(ids), full.states(ids), rtol=1e-4, atol=1e-4)
            full.save(folder)
            with self.assertRaisesRegex(pieces.DataError, "has no layer 6, only 0 to 4"):
                Decoder(CONFIG, str(TARGET), [6], "cpu")
            with self.assertRaisesRegex(pieces.DataError, r"config\.json: model_type is 'opt', expected 'llama'"):
                Decoder(dict(CONFIG, model_type="opt"), folder, [0], "cpu")

    def test_losses_are_those_of_whole_distributions_in_the_mean(self):
        random = torch.Generator().manual_seed(3)
        p, q = (torch.randn(200, generator=random).mul(1.5).softmax(-1) for _ in range(2))
        count = 100_000
        ids = torch.multinomial(p, count, replacement=True, generator=random)
        top = p.topk(pieces.KEPT)
        batch = rows.Batch([{"ids": numpy.concatenate([[0], ids.numpy()]), "asked": 1, "own_p": p[ids].numpy(),
                             "top": top.indices.expand(count, -1).numpy(), "top_p": top.values.expand(count, -1).numpy()}], "cpu")
        log_q = q.log()
        kl, overlap = rows.losses(batch, log_q[top.indices].expand(count, -1), log_q[ids])
        self.assertLess(abs(float(overlap.mean() - torch.minimum(p, q).sum())), 5 * float(overlap.std()) / count ** 0.5)
        self.assertLess(abs(float(kl.mean() - (p * (p / q).log()).sum())), 5 * float(kl.std()) / count ** 0.5)
        self.assertGreater(float(overlap.std()), 0)  # the tail counts

    def test_a_head_of_some_ids(self):
        random = torch.Generator().manual_seed(4)
        whole, some = (Decoder(CONFIG, str(TARGET), [0], "cpu") for _ in range(2))
        kept = numpy.arange(5, CONFIG["vocab_size"], 3)
        some.keep_rows(kept)
        ids = torch.randint(0, CONFIG["vocab_size"], (1, 20), generator=random)
        with torch.no_grad():
            states = whole.states(ids)
            torch.testing.assert_close(some.logits(some.states(ids)), whole.logits(states)[..., kept])
        self.assertEqual(some.places[[4, 5, 6, 8]].tolist(), [-1, 0, -1, 1])
        # one token: the ids 1 (0.5), 2 (0.25) and others; the draft cannot say 2
        top = numpy.zeros((1, pieces.KEPT), int)
        top_p = numpy.zeros((1, pieces.KEPT))
        top[0, :2], top_p[0, :2] = [1, 2], [0.5, 0.25]
        batch = rows.Batch([{"ids": numpy.array([0, 1]), "asked": 1, "own_p": numpy.array([0.5]), "top": top, "top_p": top_p}], "cpu")
        log_q = torch.full((1, pieces.KEPT), -9.0)
        log_q[0, :2] = torch.tensor([0.125, 0]).log()
        kl, overlap = rows.losses(batch, log_q, torch.tensor([0.125]).log())
        self.assertAlmostEqual(float(kl), 0.5 * math.log(4), places=5)
        self.assertAlmostEqual(float(overlap), 0.125, places=5)

    def test_the_most_frequent_ids_have_the_most_probability(self):
        top, top_p = numpy.zeros((2, pieces.KEPT), int), numpy.zeros((2, pieces.KEPT))
        top[:, :3], top_p[:, :3] = [[7, 3, 9], [3, 7, 9]], [[0.5, 0.3, 0.1], [0.5, 0.1, 0.05]]
        one = {"ids": numpy.array([1, 7, 4]), "asked": 1, "top": top, "top_p": top_p}  # 4 is not listed, so it stands for others: 1
        for count, wanted in ((1, [4]), (2, [3, 4]), (3, [3, 4, 7]), (4, [3, 4, 7, 9])):
            self.assertEqual(rows.most_frequent([one], 10, count).tolist(), wanted)

    def test_batches_have_every_conversation_once(self):
        source = numpy.random.default_rng(1)
        all_of_them = [{"ids": numpy.zeros(size), "number": i} for i, size in enumerate(source.integers(2, 60, 300))]
        for batch in (made := rows.batches(all_of_them, 200, 7)):
            self.assertLessEqual(len(batch) * max(len(c["ids"]) for c in batch), 200)
        self.assertEqual(sorted(c["number"] for batch in made for c in batch), list(range(300)))
        self.assertNotEqual([c["number"] for c in made[0]], [c["number"] for c in rows.batches(all_of_them, 200, 8)[0]])


def check_that_it_goes_on(test, *changed):
    """A training that is ended goes on with the same command, and not with options that have changed."""
    with subprocess.Popen(test.command("--minutes", 1, "--checkpoint-minutes", 0.02), stdout=subprocess.PIPE, text=True) as process:
        while not (test.draft / "checkpoint.pt").exists():
            test.assertIsNone(process.poll())
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        test.assertEqual(process.wait(timeout=60), 143)
    test.assertIn("is of a training with other options", test.finished("--minutes", 1, *changed, status=2))
    test.assertRegex(test.finished("--minutes", 0.1), r"goes on after \d+ steps")
    test.assertFalse((test.draft / "checkpoint.pt").exists())


class Trainings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Texts of the target itself, from their first token on."""
        cls.texts = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.texts)
        target = Decoder(CONFIG, str(TARGET), range(CONFIG["num_hidden_layers"]), "cpu")
        pieces.open_folder(cls.texts, {"vocab": CONFIG["vocab_size"]})
        random = torch.Generator().manual_seed(2)
        count, asked, length = 8 * pieces.PER_PIECE, 4, 16
        ids = torch.full((count, 1), CONFIG["bos_token_id"])
        with torch.no_grad():
            while True:
                logits = target.logits(target.states(ids))
                if ids.shape[1] == length:
                    break
                ids = torch.cat([ids, torch.multinomial(logits[:, -1].softmax(-1), 1, generator=random)], 1)
        for number in range(8):
            members = range(number * pieces.PER_PIECE, (number + 1) * pieces.PER_PIECE)
            pieces.write(cls.texts, number, [conversation(ids[i].tolist(), asked, logits[i]) for i in members])

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.draft = self.folder / "draft"

    def command(self, *options):
        return [sys.executable, "-B", str(TOOL), "train", "--target", str(TARGET), "--data", self.texts, "--out", str(self.draft), "--threads",
                "1", "--progress", "2", "--batch-tokens", "1024", *map(str, options)]

    def finished(self, *options, status=0):
        done = subprocess.run(self.command(*options), capture_output=True, text=True, timeout=400)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_the_overlap_rises_and_the_folder_is_the_draft(self):
        output = self.finished("--minutes", 1.2, "--head-ids", 3500, "--layers", "0,3")
        self.assertIn("3500 ids in the head", output)
        found = [float(text) for text in re.findall(r"held out: overlap (\d\.\d+)", output)]
        self.assertGreater(found[-1], found[0] + 0.1, output)
        self.assertEqual(sorted(os.listdir(self.draft)), ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "trained"])
        self.assertEqual(sorted(os.listdir(self.draft / "trained")), ["config.json", "trained.safetensors"])
        config = json.loads((self.draft / "config.json").read_text())
        self.assertEqual((config["num_hidden_layers"], config["draft_vocab_size"]), (2, 3500))
        frequent = rows.most_frequent(rows.Conversations([self.texts], 512).training, CONFIG["vocab_size"], 3500)
        numpy.testing.assert_array_equal(tensors.draft_vocabulary(str(self.draft), config), frequent)
        measured = subprocess.run([sys.executable, "-B", str(TOOL), "measure", "--data", self.texts, "--data", self.texts, "--draft",
                                   str(self.draft), "--threads", "1"], capture_output=True, text=True, timeout=100, check=True).stdout
        self.assertEqual(*re.findall(rf"{self.texts}: 156 tokens of 13 answers: (.*)\n", measured))
        self.assertIn("all 312 tokens: overlap", measured)
        self.assertAlmostEqual(float(re.search(r"overlap (\d\.\d+)", measured)[1]), found[-1], delta=0.01)
        self.assertIn("is there already", self.finished("--minutes", 1.2))
        again = self.finished("--minutes", 0.02, "--layers", "0,3", "--start", self.draft / "trained", "--out", self.folder / "again")
        self.assertIn("3500 ids in the head", again)
        self.assertAlmostEqual(float(re.search(r"held out: overlap (\d\.\d+)", again)[1]), found[-1], delta=0.01)
        other = self.finished("--minutes", 0.02, "--layers", "0,3", "--start", self.draft / "trained", "--head-ids", 3000, "--out", self.folder / "fewer")
        self.assertIn("3000 ids in the head", other)
        fewer = json.loads((self.folder / "fewer/config.json").read_text())
        numpy.testing.assert_array_equal(tensors.draft_vocabulary(str(self.folder / "fewer"), fewer), rows.most_frequent(
            rows.Conversations([self.texts], 512).training, CONFIG["vocab_size"], 3000))
        self.assertIn("trained: num_hidden_layers is 2, expected 3\n", self.finished(
            "--layers", "0,1,2", "--start", self.draft / "trained", "--out", self.folder / "other", status=2))
        self.check_mean(self.draft / "trained", self.folder / "again/trained")

    def check_mean(self, first, second):
        """One that is named twice counts twice, and the head is that of the first."""
        def mean(*folders):
            return subprocess.run([sys.executable, "-B", str(TOOL), "mean", "--target", str(TARGET), "--out", str(self.folder / "mean"), *map(str, folders)],
                                  capture_output=True, text=True, timeout=100)
        done = mean(first, second, second)
        self.assertEqual(done.returncode, 0, done.stderr)
        config = json.loads((self.folder / "mean/config.json").read_text())
        numpy.testing.assert_array_equal(tensors.draft_vocabulary(str(self.folder / "mean"), config), tensors.draft_vocabulary(str(first), config))
        name = "model.layers.1.mlp.up_proj.weight"
        one, two, both = (tensors.read(str(folder), name) for folder in (first, second, self.folder / "mean/trained"))
        self.assertGreater(numpy.abs(one - two).max(), 0)
        step = numpy.abs(both).max(1, keepdims=True) / 127
        self.assertLessEqual(float((numpy.abs(both - (one + 2 * two) / 3) / step).max()), 0.51)
        self.assertIn("mean: is there already\n", mean(first).stderr)
        shutil.rmtree(self.folder / "mean")
        self.assertIn("nowhere", (missing := mean(first, self.folder / "nowhere")).stderr)
        self.assertEqual((missing.returncode, (self.folder / "mean").exists()), (2, False))

    def test_texts_of_several_folders(self):
        other = str(self.folder / "other")
        pieces.open_folder(other, {"vocab": CONFIG["vocab_size"]})
        pieces.write(other, 3, pieces.read(self.texts, 0)[:20])
        output = self.finished("--minutes", 0.05, "--data", other)
        for folder, tokens, answers in ((self.texts, 13 * 12, 13), (other, 12, 1)):
            self.assertRegex(output, rf"held out: .* {tokens} tokens of {answers} answers of {folder}\n")
        one, both = (rows.Conversations(folders, 512) for folders in ([self.texts], [self.texts, other]))
        self.assertEqual(len(both.training), len(one.training) + 19)
        pieces.open_folder(wide := str(self.folder / "wide"), {"vocab": 7})
        self.assertIn(f"{wide}: is of a vocabulary of 7, {self.texts} of {CONFIG['vocab_size']}\n",
                      self.finished("--data", wide, "--out", self.folder / "none", status=2))

    def test_goes_on_after_an_interruption(self):
        check_that_it_goes_on(self, "--lr", 0.1)

    def test_what_does_not_fit_is_named(self):
        self.assertIn("wikisql-target: has no layer 9, only 0 to 4\n", self.finished("--layers", "0,9", status=2))
        other = self.folder / "texts"
        shutil.copytree(self.texts, other)
        (other / "sampling.json").write_text('{"vocab": 7}')
        command = [str(other) if part == self.texts else part for part in self.command()]
        errors = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False).stderr
        self.assertIn(f"{other}: is of a vocabulary of 7, {TARGET} has 4608\n", errors)
        self.assertIn("are too few", self.finished("--context", 4, status=2))
        long = str(self.folder / "long")
        pieces.open_folder(long, {"vocab": CONFIG["vocab_size"]})
        pieces.write(long, 0, [{**c, "asked": 9, "top": c["top"][5:], "top_p": c["top_p"][5:], "own_p": c["own_p"][5:]}
                               for c in pieces.read(self.texts, 0)])
        self.assertIn(f"{long}: 32 conversations are left out: their prompts have 8 tokens or more (--context)\n",
                      self.finished("--data", long, "--context", 8, "--minutes", 0.02))
        self.assertEqual(sampling.ends_of({"eos_token_id": [2, 3]}), {2, 3})


class Teaching(unittest.TestCase):
    """The target in PyTorch."""

    TEMPLATE = "{% for message in messages %}{{ '<|im_start|>' + message['content'] + '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}=>{% endif %}"

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.draft = self.folder / "draft"
        self.args = argparse.Namespace(device="cpu", dtype="f32", context=64, answer_tokens=9, question_tokens=5, question_temperature=0.7, seed=3)

    def decoder(self):
        return Decoder(CONFIG, str(TARGET), range(CONFIG["num_hidden_layers"]), "cpu").freeze("f32")

    def with_template(self):
        folder = self.folder / "chat"
        shutil.copytree(TARGET, folder)
        config = json.loads((TARGET / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": self.TEMPLATE}))
        return folder

    def test_keys_and_values_are_kept(self):
        decoder, random = self.decoder(), torch.Generator().manual_seed(6)
        ids = torch.randint(3, CONFIG["vocab_size"], (3, 12), generator=random)
        padded = torch.tensor([0, 4, 2])
        with torch.no_grad():
            cache = Cache(decoder, padded, 12)
            first = torch.cat([decoder.states(ids[begin:end, :7], cache.part(begin, end)) for begin, end in ((0, 2), (2, 3))])
            cache.length = 7
            states = torch.cat([first, decoder.states(ids[:, 7:8], cache), decoder.states(ids[:, 8:], cache)], 1)
            for line, begin in enumerate(padded.tolist()):
                alone = decoder.states(ids[line:line + 1, begin:])[0]
                torch.testing.assert_close(states[line, begin:], alone, rtol=1e-3, atol=1e-3)

    def test_what_the_target_writes_is_drawn_from_its_distribution(self):
        decoder = self.decoder()
        prompts = [[5, 6, 7], [9] * 11, [5, 6, 7], [300, 4]]
        for room in (1 << 20, 40):  # together, and one after another
            target = asking.Target(decoder, {2}, room, self.args)
            for prompt, written in zip(prompts, target.write(prompts, 8, 1e-4, torch.Generator().manual_seed(1))):
                ids = list(prompt)
                with torch.no_grad():
                    while len(ids) < len(prompt) + 8 and (len(ids) == len(prompt) or ids[-1] != 2):
                        ids.append(int(decoder.logits(decoder.states(torch.tensor([ids])))[0, -1].argmax()))
                self.assertEqual(written, ids[len(prompt):])
        # at temperature 1: 4,000 first tokens against the distribution; the 20 most likely, each within 5 standard deviations
        count = 4000
        drawn = [ids[0] for ids in target.write([prompts[0]] * count, 1, 1.0, torch.Generator().manual_seed(2))]
        with torch.no_grad():
            p = decoder.logits(decoder.states(torch.tensor([prompts[0]])))[0, -1].softmax(-1)
        for token in p.topk(20).indices.tolist():
            self.assertLess(abs(drawn.count(token) / count - float(p[token])), 5 * math.sqrt(float(p[token]) / count), token)
        # an end is not among the first `least`, and not in what has none
        often = int(p.argmax())
        target = asking.Target(decoder, {often}, 1 << 20, self.args)
        for written in target.write([prompts[0]] * 50, 6, 1.0, torch.Generator().manual_seed(3), least=2):
            self.assertNotIn(often, written[:2])
            self.assertNotIn(often, written[:-1])
        self.assertIn(often, [ids[-1] for ids in target.write([prompts[0]] * 50, 6, 1.0, torch.Generator().manual_seed(3))])
        self.assertNotIn(often, sum(target.without_end([prompts[0]] * 50, 6, 1.0, torch.Generator().manual_seed(3)), []))

    def test_a_conversation_is_a_question_and_its_answer(self):
        chat = Chat(str(self.with_template()))
        self.assertEqual(chat.decode(chat.before), "")
        self.assertEqual(chat.message("ab") + chat.after, chat.asked("ab"))
        self.assertEqual(chat.message(""), chat.before)
        self.assertTrue(chat.asked("ab")[:1] == chat.before and chat.asked("ab")[-len(chat.after):] == chat.after)
        target = asking.Target(self.decoder(), {2}, 1 << 20, self.args)
        given = [f"number {i}" for i in range(30)]
        made = asking.Asker(target, chat, self.args, prompts=given).conversations(range(20, 33), torch.Generator().manual_seed(1))
        for number, c in zip(range(20, 33), made):
            self.assertEqual((c["number"], c["ids"][:c["asked"]].tolist()), (number, chat.asked(given[sampling.place_of(number, 30)])))
            self.assertTrue(1 <= len(c["ids"]) - c["asked"] <= 9)
        for texts in ((), given):
            asker = asking.Asker(target, chat, self.args, texts=texts)
            made = asker.conversations(range(60), torch.Generator().manual_seed(1))
            self.assertEqual(len(made) + asker.left_out, 60)
            for c in made:
                opening = openings.of(3, c["number"], about_texts=bool(texts))
                asked = c["ids"][:c["asked"]].tolist()
                self.assertEqual(asked[len(asked) - len(chat.after):], chat.after)
                if texts or not opening.has_text:
                    message = chat.message(opening.filled(given[sampling.place_of(c["number"], 30)] if texts else ""))
                    more = asked[len(message):len(asked) - len(chat.after)]
                    self.assertEqual(asked[:len(message)], message)
                    self.assertTrue(1 <= len(more) <= 5 if opening.goes_on else not more, more)
        # too long for the context
        asker = asking.Asker(target, chat, self.args, prompts=["a b c d " * 30, "short"])
        self.assertEqual([c["number"] for c in asker.conversations(range(4), torch.Generator())], [1, 3])
        self.assertEqual(asker.left_out, 2)
        # without a template a prompt is the text, after the first token of texts
        self.assertEqual(Chat(str(TARGET)).asked("short"), [1] + chat.encode("short"))

    def command(self, *options, target=None):
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": f"table: a, b{i} | question: what is a when b{i} is {i}? | SQL: "}) + "\n" for i in range(400)))
        measured = self.folder / "measured.jsonl"
        measured.write_text('{"prompt": "table: x, y | question: x of y | SQL: "}\n' * 3)
        return [sys.executable, "-B", str(TOOL), "teach", "--target", str(target or TARGET), "--out", str(self.draft), "--threads", "1", "--prompts",
                str(prompts), "--only-measured", str(measured), "--parallel", "48", "--answer-tokens", "16", "--held-out", "20", "--progress", "2",
                "--batch-tokens", "1024", *map(str, options)]

    def finished(self, *options, status=0, **named):
        done = subprocess.run(self.command(*options, **named), capture_output=True, text=True, timeout=400)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_the_overlap_rises_and_the_folder_is_the_draft(self):
        output = self.finished("--minutes", 1, "--head-ids", 3500, "--layers", "0,4")
        self.assertIn("3500 ids in the head", output)
        for name in ("prompts", "measured"):
            found = [(float(overlap), int(answers)) for overlap, answers in
                     re.findall(rf"held out: overlap (\d\.\d+), .* of (\d+) answers of \S*{name}\.jsonl", output)]
            self.assertGreater(found[-1][0], found[0][0] + 0.1, output)
            self.assertEqual({answers for _, answers in found}, {20 if name == "prompts" else 3})
        self.assertEqual(sorted(os.listdir(self.draft)), ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "trained"])
        self.assertIn("is there already", self.finished("--minutes", 1))
        again = self.finished("--minutes", 0.02, "--layers", "0,4", "--start", self.draft / "trained", "--out", self.folder / "again")
        first = re.search(r"held out: overlap (\d\.\d+), .* of 20 answers", again)[1]
        last = re.findall(r"held out: overlap (\d\.\d+), .* of 20 answers", output)[-1]
        self.assertAlmostEqual(float(first), float(last), delta=0.01)  # it is kept in 8 bits

    def test_goes_on_after_an_interruption(self):
        check_that_it_goes_on(self, "--epochs", 3)

    def test_the_losses_are_those_of_whole_distributions(self):
        teacher = object.__new__(teaching.Teaching)
        teacher.target, teacher.draft = self.decoder(), Decoder(CONFIG, str(TARGET), [0], "cpu")
        states = [torch.randn(7, CONFIG["hidden_size"], generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
        for kept in (numpy.arange(CONFIG["vocab_size"]), numpy.arange(3, CONFIG["vocab_size"], 2)):
            teacher.draft.keep_rows(kept)
            teacher.said = torch.from_numpy(kept)
            q = torch.zeros(7, CONFIG["vocab_size"], dtype=torch.float64)
            q[:, kept] = (states[0].double() @ teacher.draft.head.double().T).softmax(-1).detach()
            p = (states[1].double() @ teacher.target.head.double().T).softmax(-1)
            kl, overlap = teacher.losses(*states)
            torch.testing.assert_close(overlap.double(), torch.minimum(p, q).sum(-1), rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(kl.double(), (p[:, kept] * (p[:, kept] / q[:, kept]).log()).sum(-1), rtol=1e-3, atol=1e-5)
            teacher.draft = Decoder(CONFIG, str(TARGET), [0], "cpu")

    def test_what_does_not_fit_is_named(self):
        command = [part for part in self.command() if part not in ("--prompts", str(self.folder / "prompts.jsonl"))]
        errors = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(errors.returncode, 2)
        self.assertIn("has no chat template, so the target cannot invent questions: give --prompts alone\n", errors.stderr)
        self.assertIn("no prompt is short enough for --context 17 and answers of 16 tokens\n", self.finished("--context", 17, status=2))
        errors = subprocess.run([*command, "--no-own", "--target", str(self.with_template())], capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual((errors.returncode, errors.stderr), (2, "distill_draft: --no-own: needs --prompts or --texts\n"))
        bare = self.folder / "bare"
        shutil.copytree(TARGET, bare)
        (bare / "tokenizer.json").unlink()
        self.assertIn("bare/tokenizer.json: is not there", self.finished(target=bare, status=2))


if __name__ == "__main__":
    unittest.main()
