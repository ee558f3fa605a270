#!/usr/bin/env python3
"""training/distill_draft.py --kind eagle3 and dflash with PyTorch: what a head says at each draft step is what it says where it is run row by
row, the folders have the published layout, a training raises the overlap and goes on after an interruption as if there had been none. Run by
hand where torch (2.9 or later), numpy, tokenizers and jinja2 are installed; takes about five minutes."""
import json
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
TARGET = ROOT / "tests/models/stories260k"
sys.path.insert(0, str(ROOT / "training"))
import numpy  # noqa: E402
import torch  # noqa: E402
import llama_folder  # noqa: E402
from draft_distillation import kinds, pieces, rows, tensors  # noqa: E402
from draft_distillation.block_drafter import BlockDrafter  # noqa: E402
from draft_distillation.decoder import Cache, Decoder  # noqa: E402
from draft_distillation.eagle_head import EagleHead  # noqa: E402

CONFIG = json.loads((TARGET / "config.json").read_text())
STATE_LAYERS = [0, 2, 3]
torch.set_num_threads(1)


def target():
    return Decoder(CONFIG, str(TARGET), range(CONFIG["num_hidden_layers"]), "cpu").freeze("f32")


def shaken(draft, amount=0.3):
    """Random parameters, so that no part of the computation is without effect."""
    random = torch.Generator().manual_seed(1)
    for value in draft.parameters.values():
        size = amount * max(0.1, float(value.detach().std())) if value.dim() > 1 else amount
        value.data.add_(torch.randn(value.shape, generator=random), alpha=size)
    draft.scale_states(torch.rand(50, len(draft.fixed["scale"]), generator=random) * torch.tensor([1.0, 5.0, 9.0]).repeat_interleave(draft.hidden))
    return draft


def text(length):
    return torch.cat([torch.tensor([1]), torch.randint(259, 512, (length - 1,), generator=torch.Generator().manual_seed(2))])


def places_of(*texts, asked=1):
    return rows.Places([{"ids": ids.numpy(), "asked": asked} for ids in texts], "cpu")


class Reference:
    """The published definitions in float64 from the tensors of a folder, one row at a time."""

    def __init__(self, folder):
        self.config = json.loads(pathlib.Path(folder, "config.json").read_text())
        data = pathlib.Path(folder, "model.safetensors").read_bytes()
        header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
        self.kinds = {name: entry["dtype"] for name, entry in header.items() if name != "__metadata__"}
        self.tensors = {name: tensors.read(folder, name).astype("f8") for name, kind in self.kinds.items() if kind == "BF16"}
        self.dim = self.config["head_dim"]

    def __getitem__(self, name):
        return self.tensors[name + ".weight"]

    def norm(self, x, name):
        return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"]) * self[name]

    def frequencies(self):
        """Of llama3, as published: by wavelengths."""
        found = 1 / self.config["rope_theta"] ** (numpy.arange(0, self.dim, 2) / self.dim)
        scaling = self.config.get("rope_scaling")
        if not scaling:
            return found
        lengths, first = 2 * numpy.pi / found, scaling["original_max_position_embeddings"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        smooth = (first / lengths - low) / (high - low)
        between = (1 - smooth) * found / scaling["factor"] + smooth * found
        return numpy.where(lengths < first / high, found, numpy.where(lengths > first / low, found / scaling["factor"], between))

    def rope(self, x, position):
        angle = position * self.frequencies()
        first, second = numpy.split(x, 2, -1)
        return numpy.concatenate([first * numpy.cos(angle) - second * numpy.sin(angle), second * numpy.cos(angle) + first * numpy.sin(angle)], -1)

    def split(self, x):
        return x.reshape(-1, self.dim)

    def attend(self, query, seen):
        """seen: (key, value) [key heads, head_dim] of each row."""
        mixed = []
        for head, q in enumerate(query):
            place = head * self.config["num_key_value_heads"] // self.config["num_attention_heads"]
            scores = numpy.array([q @ key[place] for key, _ in seen]) / numpy.sqrt(self.dim)
            weights = numpy.exp(scores - scores.max())
            mixed.append(sum(w * value[place] for w, (_, value) in zip(weights / weights.sum(), seen)))
        return numpy.concatenate(mixed)

    def mlp(self, x, layer):
        gate = self[layer + "mlp.gate_proj"] @ x
        return self[layer + "mlp.down_proj"] @ (gate / (1 + numpy.exp(-gate)) * (self[layer + "mlp.up_proj"] @ x))

    def target_states(self, ids):
        """[layers][rows, hidden] the residual stream of a Llama or Qwen3 after each layer."""
        x, found, normed = self["model.embed_tokens"][ids], [], self.config["model_type"] == "qwen3"
        for number in range(self.config["num_hidden_layers"]):
            layer, seen, after = f"model.layers.{number}.", [], []
            for position, row in enumerate(x):
                y = self.norm(row, layer + "input_layernorm")
                q, k, v = (self.split(self[f"{layer}self_attn.{name}_proj"] @ y) for name in "qkv")
                if normed:
                    q, k = (self.norm(part, f"{layer}self_attn.{name}_norm") for part, name in ((q, "q"), (k, "k")))
                seen.append((self.rope(k, position), v))
                row = row + self[layer + "self_attn.o_proj"] @ self.attend(self.rope(q, position), seen)
                after.append(row + self.mlp(self.norm(row, layer + "post_attention_layernorm"), layer))
            x = numpy.stack(after)
            found.append(x)
        return found

    def head_row(self, embedding, state, position, seen):
        """A row of an EAGLE-3 head: (its state, the rows that the next one sees, logits)."""
        both = numpy.concatenate([self.norm(embedding, "midlayer.input_layernorm"), self.norm(state, "midlayer.hidden_norm")])
        q, k, v = (self.split(self[f"midlayer.self_attn.{name}_proj"] @ both) for name in "qkv")
        seen = [*seen, (self.rope(k, position), v)]
        x = state + self["midlayer.self_attn.o_proj"] @ self.attend(self.rope(q, position), seen)
        x = x + self.mlp(self.norm(x, "midlayer.post_attention_layernorm"), "midlayer.")
        return x, seen, self["lm_head"] @ self.norm(x, "norm")

    def block(self, embeddings, context, root):
        """States [block, hidden] of a block drafter whose root is at the position `root`; context: joined states of the tokens before."""
        context, x = self.norm(context @ self["fc"].T, "hidden_norm"), embeddings
        for number in range(self.config["num_hidden_layers"]):
            layer = f"layers.{number}."

            def heads(y, name, position=None, layer=layer):
                found = self.split(self[f"{layer}self_attn.{name}_proj"] @ y)
                return found if position is None else self.rope(self.norm(found, f"{layer}self_attn.{name}_norm"), position)

            y = self.norm(x, layer + "input_layernorm")
            seen = [(heads(c, "k", p), heads(c, "v")) for p, c in enumerate(context[:root])]
            seen += [(heads(row, "k", root + i), heads(row, "v")) for i, row in enumerate(y)]
            x = x + numpy.stack([self[layer + "self_attn.o_proj"] @ self.attend(heads(row, "q", root + i), seen) for i, row in enumerate(y)])
            x = x + numpy.stack([self.mlp(row, layer) for row in self.norm(x, layer + "post_attention_layernorm")])
        return self.norm(x, "norm")


class Heads(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def said(self, draft, ids):
        """(logits of each draft step for each predicted token, or None; joined states)"""
        places = places_of(ids, text(5))
        with torch.no_grad():
            states = target().with_states(places.ids, STATE_LAYERS)[1]
            found = []
            for step in draft.steps(places, states):
                logits = draft.logits(step.states, None, step.before).double().numpy()
                found.append(dict(zip(step.which.tolist(), logits)))
        return found, states[0].double().numpy()

    def test_a_head_says_in_training_what_it_says_row_by_row(self):
        draft = shaken(EagleHead(CONFIG, str(TARGET), 4, STATE_LAYERS, "cpu"))
        draft.keep_rows(numpy.arange(3, 512, 2))
        draft.write(self.folder, str(TARGET))
        draft.take(self.folder)  # as it was rounded
        ids, reference = text(11), Reference(self.folder)
        found, states = self.said(draft, ids)
        embeddings, compared, seen = draft.embedding[ids].double().numpy(), 0, []
        for root in range(len(ids) - 2):  # the last row with a true state
            state, chain = reference["fc"] @ states[root], seen
            for step in range(min(4, len(ids) - 2 - root)):
                row = root + step
                state, chain, logits = reference.head_row(embeddings[row + 1], state, row, chain)
                if step == 0:
                    seen = chain
                numpy.testing.assert_allclose(found[step][row + 1], logits, rtol=0, atol=2e-5 * numpy.abs(logits).max())
                compared += 1
        self.assertEqual(compared, sum(range(9, 5, -1)))
        self.assertNotIn(0, found[0])  # nothing comes before the first token
        self.assertNotIn(3, found[3])

    def test_a_block_says_in_training_what_it_says_alone(self):
        draft = shaken(BlockDrafter(CONFIG, str(TARGET), [1, 4], STATE_LAYERS, "cpu", draft_steps=3, rank=8))
        draft.start(None, None, None, lambda count: numpy.setdiff1d(numpy.arange(count + 1), [300]))
        draft.write(self.folder, str(TARGET))
        draft.take(self.folder)
        ids, reference = text(9), Reference(self.folder)
        found, states = self.said(draft, ids)
        table, head = draft.embedding.double().numpy(), draft.head.double().numpy()
        for root in range(len(ids) - 1):
            block = reference.block(table[[int(ids[root]), 300, 300, 300]], states, root)
            for step in range(min(3, len(ids) - 1 - root)):
                logits = head @ block[step + 1] + reference["markov_head.markov_w2"] @ reference["markov_head.markov_w1"][int(ids[root + step])]
                numpy.testing.assert_allclose(found[step][root + step], logits, rtol=0, atol=2e-5 * numpy.abs(logits).max())
        self.assertEqual([sorted(n for n in of_step if n < 8) for of_step in found], [list(range(first, 8)) for first in range(3)])
        with torch.enable_grad():  # some blocks alone say the same
            draft.roots = 4
            places = places_of(ids, text(5))
            some = draft.steps(places, target().with_states(places.ids, STATE_LAYERS)[1])
        self.assertEqual(len(some[0].states), 4)
        for step, of_step in zip(some, found):
            for place, logits in zip(step.which.tolist(), draft.logits(step.states, None, step.before).detach().double().numpy()):
                numpy.testing.assert_allclose(logits, of_step[place], rtol=0, atol=1e-5 * numpy.abs(logits).max())

    def test_states_are_those_of_the_target(self):
        random = numpy.random.default_rng(5)
        config = llama_folder.config(hidden=24, layers=3, heads=4, kv_heads=2, ffn=40, vocab=30, context=64)
        scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
        for change in ({}, {"rope_scaling": scaling}, {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "layer_types": ["full_attention"] * 3}):
            config = {**config, "head_dim": 8, **change}
            names = {name: shape for name, shape in llama_folder.tensor_shapes(32, 3, 4, 2, 40, 30).items()}
            shapes = {name: tuple(24 if size == 32 and not (place == 0 and ".q_proj" in name or place == 1 and ".o_proj" in name) else size
                                  for place, size in enumerate(shape)) for name, shape in names.items()}
            shapes |= {f"model.layers.{layer}.self_attn.{name}_norm.weight": (8,) for layer in range(3) for name in "qk" if change.get("model_type")}
            content = {name: (shape, tensors.bf16_bytes(random.normal(size=shape) * (0.3 if len(shape) > 1 else 1))) for name, shape in shapes.items()}
            llama_folder.write_folder(self.folder, config, content, "BF16")
            ids = random.integers(0, 30, 20)
            decoder = Decoder(config, self.folder, range(3), "cpu")
            with torch.no_grad():
                found = decoder.with_states(torch.from_numpy(ids)[None], [0, 2])[1][0].double().numpy()
            wanted = Reference(self.folder).target_states(ids)
            numpy.testing.assert_allclose(found, numpy.concatenate([wanted[0], wanted[2]], 1), rtol=0, atol=1e-5 * numpy.abs(wanted[2]).max())
            for draft in (EagleHead(config, self.folder, 2, [0, 1], "cpu"), BlockDrafter(config, self.folder, [1, 2], [0, 1], "cpu", rank=4)):
                draft.write(str(pathlib.Path(self.folder, "draft")), self.folder)
                draft.take(str(pathlib.Path(self.folder, "draft")))
        self.assertEqual(json.loads(pathlib.Path(self.folder, "draft/config.json").read_text())["rope_scaling"], scaling)
        with self.assertRaisesRegex(pieces.DataError, "config.json: rope_scaling of type 'yarn' is not served by this tool"):
            Decoder({**config, "rope_scaling": {"type": "yarn"}}, self.folder, range(3), "cpu")
        with self.assertRaisesRegex(pieces.DataError, "config.json: rope_scaling has no factor"):
            Decoder({**config, "rope_scaling": {"type": "linear"}}, self.folder, range(3), "cpu")

    def test_gradients_are_those_of_small_changes(self):
        for draft in (shaken(EagleHead(CONFIG, str(TARGET), 4, STATE_LAYERS, "cpu")),
                      shaken(BlockDrafter(CONFIG, str(TARGET), [4], STATE_LAYERS, "cpu", rank=8, roots=1000))):
            places = places_of(text(12), text(7))
            states = target().with_states(places.ids, STATE_LAYERS)[1]

            def loss(draft=draft, places=places, states=states):
                return sum((draft.logits(step.states, None, step.before).log_softmax(-1)[:, 300]).sum() for step in draft.steps(places, states))

            loss().backward()
            for name, value in draft.parameters.items():
                direction = value.grad / value.grad.norm()
                size = 2e-3 * float(value.detach().norm())
                values = []
                for sign in (1, -1):
                    value.data.add_(direction, alpha=sign * size)
                    values.append(loss().item())
                    value.data.add_(direction, alpha=-sign * size)
                slope = (values[0] - values[1]) / (2 * size)
                self.assertAlmostEqual(slope / float(value.grad.norm()), 1, delta=0.03, msg=name)

    def test_folders_have_the_published_layout(self):
        head = EagleHead(CONFIG, str(TARGET), 4, STATE_LAYERS, "cpu")
        head.keep_rows(numpy.arange(10, 310))
        head.write(self.folder, str(TARGET))
        written = Reference(self.folder)
        layer = ["hidden_norm", "input_layernorm", "post_attention_layernorm", "mlp.down_proj", "mlp.gate_proj", "mlp.up_proj",
                 *(f"self_attn.{name}_proj" for name in "qkvo")]
        self.assertEqual(sorted(written.kinds), sorted([f"midlayer.{name}.weight" for name in layer] +
                                                       ["d2t", "t2d", "fc.weight", "lm_head.weight", "norm.weight"]))
        self.assertEqual({name: kind for name, kind in written.kinds.items() if kind != "BF16"}, {"d2t": "I64", "t2d": "BOOL"})
        self.assertEqual({name: written[name].shape for name in ("fc", "midlayer.self_attn.q_proj", "midlayer.self_attn.k_proj", "lm_head")},
                         {"fc": (64, 192), "midlayer.self_attn.q_proj": (64, 128), "midlayer.self_attn.k_proj": (32, 128), "lm_head": (300, 64)})
        self.assertEqual(tensors.find(self.folder, "t2d")[2], bytes(10) + b"\1" * 300 + bytes(202))
        fields = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "vocab_size": 512, "draft_vocab_size": 300,
                  "target_hidden_size": 64, "num_key_value_heads": 4, "tie_word_embeddings": False}
        self.assertEqual({name: written.config[name] for name in fields}, fields)
        self.assertEqual(written.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"], STATE_LAYERS)
        with self.assertRaisesRegex(pieces.DataError, r"eagle_aux_hidden_state_layer_ids is \[0, 2, 3\], expected \[1, 2, 3\]"):
            EagleHead(CONFIG, str(TARGET), 4, [1, 2, 3], "cpu").take(self.folder)
        with self.assertRaisesRegex(pieces.DataError, r"architectures is \['LlamaForCausalLM'\], expected \['LlamaForCausalLMEagle3'\]"):
            head.take(str(TARGET))
        block = BlockDrafter(CONFIG, str(TARGET), [0, 4], STATE_LAYERS, "cpu", draft_steps=7, rank=8)
        block.write(self.folder, str(TARGET))
        written = Reference(self.folder)
        layer = [name for name in layer if name != "hidden_norm"] + ["self_attn.q_norm", "self_attn.k_norm"]
        self.assertEqual(sorted(written.kinds), sorted([f"layers.{number}.{name}.weight" for number in range(2) for name in layer] +
                                                       [f"markov_head.markov_w{number}.weight" for number in (1, 2)] +
                                                       ["fc.weight", "hidden_norm.weight", "norm.weight"]))
        fields = {"architectures": ["DFlashDraftModel"], "num_hidden_layers": 2, "num_target_layers": 5, "block_size": 8, "markov_rank": 8,
                  "dflash_config": {"mask_token_id": 0, "target_layer_ids": STATE_LAYERS}}
        self.assertEqual({name: written.config[name] for name in fields}, fields)

    def test_the_head_of_the_tests_is_one(self):
        folder = str(ROOT / "tests/models/stories260k-eagle3")
        draft = kinds.like(folder, str(TARGET))
        draft.take(folder)
        source = target()
        random, ids = torch.Generator().manual_seed(3), torch.ones(64, 1, dtype=torch.long)
        with torch.no_grad():
            while ids.shape[1] < 40:
                ids = torch.cat([ids, torch.multinomial(source.logits(source.states(ids)[:, -1]).softmax(-1), 1, generator=random)], 1)
            places = places_of(*ids, asked=4)
            own, states = source.with_states(places.ids, draft.state_layers)
            p = source.logits(own.flatten(0, 1)[places.where]).softmax(-1)[:, draft.kept]
            overlaps = [float(torch.minimum(step.of(p), draft.logits(step.states).softmax(-1)).sum(1).mean())
                        for step in draft.steps(places, states)]
        for overlap, least in zip(overlaps, (0.55, 0.54, 0.53, 0.51)):
            self.assertGreater(overlap, least, overlaps)


class Trainings(unittest.TestCase):
    """By the commands."""

    @classmethod
    def setUpClass(cls):
        """Texts of the target itself, from their first token on."""
        cls.texts = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.texts)
        count, asked, length = 16 * pieces.PER_PIECE, 3, 40
        pieces.open_folder(cls.texts, {"vocab": CONFIG["vocab_size"]})
        source, random, ids = target(), torch.Generator().manual_seed(4), torch.ones(count, 1, dtype=torch.long)
        cache, said = Cache(source, torch.zeros(count, dtype=torch.long), length), []
        with torch.no_grad():
            while ids.shape[1] < length:
                said.append(source.logits(source.states(ids[:, -1:], cache)[:, 0]).softmax(-1))
                ids = torch.cat([ids, torch.multinomial(said[-1], 1, generator=random)], 1)
        said = torch.stack(said[asked - 1:], 1)
        top, own = said.topk(pieces.KEPT), said.gather(2, ids[:, asked:, None])[..., 0]
        for number in range(count // pieces.PER_PIECE):
            members = range(number * pieces.PER_PIECE, (number + 1) * pieces.PER_PIECE)
            pieces.write(cls.texts, number, [{"ids": ids[i].numpy(), "asked": asked, "top": top.indices[i].numpy(), "top_p": top.values[i].numpy(),
                                              "own_p": own[i].numpy()} for i in members])

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def command(self, kind, out, *options):
        return [sys.executable, "-B", str(TOOL), "train", "--kind", kind, "--target", str(TARGET), "--data", self.texts, "--out",
                str(self.folder / out), "--threads", "1", "--progress", "5", "--batch-tokens", "1024", "--dtype", "f32", *map(str, options)]

    def run_tool(self, command, status=0):
        done = subprocess.run(command, capture_output=True, text=True, timeout=400)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def train(self, *options, status=0):
        return self.run_tool(self.command(*options), status)

    @staticmethod
    def overlaps(output):
        """[measurements][draft steps]"""
        return [[float(text) for text in found.split()] for found in re.findall(r"overlap ([\d. ]+), KL", output)]

    def check_measured(self, out, wanted, *options):
        measured = self.run_tool([sys.executable, "-B", str(TOOL), "measure", "--data", self.texts, "--draft", str(self.folder / out),
                                  "--target", str(TARGET), "--threads", "1", "--dtype", "f32", *options])
        numpy.testing.assert_allclose(self.overlaps(measured)[-1], wanted, rtol=0, atol=0.01)  # the folder is in bf16

    def test_a_head_learns(self):
        output = self.train("eagle3", "head", "--steps", 110, "--head-ids", 288, "--state-layers", "1,2,3")
        first, *_, last = self.overlaps(output)
        self.assertEqual(len(last), 4)
        self.assertGreater(first[0], 0.25, output)  # by least squares
        for before, after in zip(first, last):
            self.assertGreater(after, before + 0.03, output)
        self.assertGreater(last[0], last[3] + 0.03, output)  # true states say more
        self.assertEqual(sorted(os.listdir(self.folder / "head")), ["config.json", "model.safetensors", "tokenizer.model"])
        self.check_measured("head", last)
        self.check_measured("head", last[:2], "--draft-steps", "2")
        again = self.train("eagle3", "again", "--steps", 1, "--state-layers", "1,2,3", "--start", self.folder / "head", "--lr", 1e-9)
        numpy.testing.assert_allclose(self.overlaps(again)[0], last, rtol=0, atol=0.01)
        self.assertIn("288 ids in the head", again)
        self.run_tool([sys.executable, "-B", str(TOOL), "mean", "--target", str(TARGET), "--out", str(self.folder / "mean"),
                       str(self.folder / "head"), str(self.folder / "again")])
        self.check_measured("mean", last)
        self.assertIn("takes hidden states of its target, which --target must name\n", self.run_tool(
            [sys.executable, "-B", str(TOOL), "measure", "--data", self.texts, "--draft", str(self.folder / "head")], 2))

    def test_a_block_drafter_learns(self):
        output = self.train("dflash", "block", "--steps", 110, "--layers", "3,4", "--draft-steps", 3, "--markov-rank", 16, "--blocks", 256)
        first, *_, last = self.overlaps(output)
        self.assertEqual(len(last), 3)
        for before, after in zip(first, last):
            self.assertGreater(after, before + 0.1, output)
        self.check_measured("block", last)
        again = self.train("dflash", "again", "--steps", 1, "--layers", "0,0", "--draft-steps", 3, "--markov-rank", 16, "--start",
                           self.folder / "block", "--lr", 1e-9)
        numpy.testing.assert_allclose(self.overlaps(again)[0], last, rtol=0, atol=0.01)

    def test_an_interruption_changes_nothing(self):
        for kind in ("eagle3", "dflash", "layers"):
            options = ["--steps", 8, "--checkpoint-minutes", 0.001, "--head-ids" if kind != "dflash" else "--markov-rank", 280]
            self.train(kind, "whole", *options)
            interrupted = self.folder / "parts"
            with subprocess.Popen(self.command(kind, "parts", *options), stdout=subprocess.PIPE, text=True) as process:
                while not (interrupted / "checkpoint.pt").exists():
                    self.assertIsNone(process.poll())
                    time.sleep(0.02)
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(timeout=60), 143)
            self.assertIn("is of a training with other options", self.train(kind, "parts", *options, "--state-layers", "0,1,2", "--seed", 5, status=2))
            self.assertRegex(self.train(kind, "parts", *options), "goes on after [1-7] steps")
            self.assertEqual((interrupted / "model.safetensors").read_bytes(), (self.folder / "whole/model.safetensors").read_bytes(), kind)
            for name in ("whole", "parts"):
                shutil.rmtree(self.folder / name)

    def test_what_does_not_fit_is_named(self):
        for kind, options, reason in (("eagle3", ("--layers", "3,4"), "--layers: an EAGLE-3 head has one layer, got 2\n"),
                                      ("eagle3", ("--layers", 5), "stories260k: has no layer 5, only 0 to 4\n"),
                                      ("eagle3", ("--state-layers", "2,1"), "--state-layers: expected ascending layers, got 2,1\n"),
                                      ("dflash", ("--state-layers", "1,4"), "stories260k: the output of layer 4 is asked for, expected 0 to 3: it has 5 layers"),
                                      ("dflash", ("--markov-rank", -1), "--markov-rank: expected 0 or more, got -1\n"),
                                      ("dflash", ("--head-ids", 300), "--head-ids: a block drafter has the head of its target\n"),
                                      ("eagle3", ("--start", TARGET), "stories260k: architectures is ['LlamaForCausalLM'], expected")):
            self.assertIn(reason, self.train(kind, "out", *options, status=2))

    def test_a_target_teaches_a_head(self):
        pair, prompts = ROOT / "deploy/demo/wikisql-target", self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": f"table: a, b{i} | question: what is a when b{i} is {i}? | SQL: "}) + "\n" for i in range(400)))
        for kind, options in (("eagle3", ("--head-ids", 3000)), ("dflash", ("--layers", "4", "--markov-rank", 8))):
            output = self.run_tool([sys.executable, "-B", str(TOOL), "teach", "--kind", kind, "--target", str(pair), "--out",
                                    str(self.folder / kind), "--threads", "1", "--prompts", str(prompts), "--parallel", "48", "--answer-tokens", "16",
                                    "--held-out", "10", "--progress", "2", "--batch-tokens", "512", "--steps", "25", "--dtype", "f32",
                                    *map(str, options)])
            first, *_, last = self.overlaps(output)
            self.assertGreater(sum(last), sum(first) + 0.2, output)
            self.assertIn("tokenizer.json", os.listdir(self.folder / kind))


if __name__ == "__main__":
    unittest.main()
