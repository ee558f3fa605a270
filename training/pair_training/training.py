"""The training of one model: the loss, the optimisers, checkpoints, progress."""
import functools
import hashlib
import json
import math
import os
import time

import torch
from torch.nn import functional

import arithmetic
from pair_training import crew, data, model, say, teacher, tokenizer, variation
from pair_training.batch import Batch
from pair_training.shape import shape_of

PROMPT_WEIGHT = 0.1  # of a token of a prompt in the loss; a token of a completion has 1
PROMPT_SHARE = 0.25  # of the tokens of prompts that are drawn for a step
WARM_UP = 50         # steps


class TrainingError(Exception):
    """A training that cannot start; the text says why."""


def train(args, tokenizer_file, out, shape, minutes, target=None):
    """Trains a model and writes it to `out`; with the folder of a target, on its distributions."""
    checkpoint = os.path.join(out, "checkpoint.pt")
    if os.path.exists(os.path.join(out, "model.safetensors")) and not os.path.exists(checkpoint):
        say(f"{out}: is there already")
        return
    needed = [tokenizer_file] + [os.path.join(folder, name) for folder in (target, args.start) if folder
                            for name in ("config.json", "model.safetensors")]
    for path in needed:
        if not os.path.isfile(path):
            raise TrainingError(f"{path}: no such file")
    vocab = tokenizer.Tokenizer(tokenizer_file).size
    if args.start:
        shape = dict(shape_of(args.start), context=args.context)
        if shape["vocab"] != vocab:
            raise TrainingError(f"{args.start}: has a vocabulary of {shape['vocab']}, {tokenizer_file} of {vocab}")
    else:
        shape = dict(shape, kv_heads=shape["heads"], vocab=vocab, context=args.context, theta=10000.0)
    if not 0 <= args.frozen < shape["layers"]:
        raise TrainingError(f"--frozen {args.frozen}: expected 0 to {shape['layers'] - 1}, fewer than all layers")
    if os.path.exists(checkpoint) and torch.load(checkpoint, weights_only=True, mmap=True)["of"] != _fingerprint(args, shape, target):
        raise TrainingError(f"{checkpoint}: is of a training with other options; remove it to start anew")
    crew.run(functools.partial(_train, args, tokenizer_file, out, shape, minutes, target), args.processes, args.threads)


def _fingerprint(args, shape, target):
    """Of all that a checkpoint depends on; the minutes may be changed."""
    options = ("seed", "lr", "optimizer", "batch_tokens", "pack_tokens", "processes", "copy_case", "data", "overlap_weight", "label_weight", "vary",
               "variations", "frozen")
    text = json.dumps([shape, target and os.path.abspath(target)] + [getattr(args, name, None) for name in options])
    return hashlib.sha256(text.encode()).hexdigest()


def _train(args, tokenizer_file, out, shape, minutes, target, members):
    Training(args, tokenizer_file, out, shape, minutes, target, members).run()


class Training:
    """`run` ends when the time is over. The same command goes on from the last checkpoint."""

    def __init__(self, args, tokenizer_file, out, shape, minutes, target, members):
        self.args, self.tokenizer_file, self.out, self.minutes, self.crew = args, tokenizer_file, out, minutes, members
        encode = tokenizer.Tokenizer(tokenizer_file).encode
        os.makedirs(out, exist_ok=True)
        rows = data.read_rows(args.data, args.copy_case)
        self.encode, self.variation = encode, variation.Variation(rows, args.copy_case) if args.vary else None
        if target and args.vary:  # the target is asked about all that is trained on
            epochs = [self.variation.epoch(args.seed + number) for number in range(args.variations)]
            rows, self.variation = [row for epoch in epochs for row in epoch], None
        self.groups, tokens, left_out = data.encode_rows(encode, rows, args.context)
        self.held_out = []
        if args.held_out:
            rows = data.read_rows(args.held_out, args.copy_case)
            rows = rows[::max(1, len(rows) // args.held_out_rows)][:args.held_out_rows]
            self.held_out, _, _ = data.encode_rows(encode, rows, args.context)
        self.llama = model.Llama(shape, args.device)
        if args.frozen:
            self.llama.freeze(args.frozen)
        self.say(f"{self.llama.size()} parameters, {sum(len(members) for _, members in self.groups)} rows"
                 + (f" ({left_out} with more than {args.context} tokens are left out)" if left_out else "")
                 + f", {minutes:g} minutes")
        self.optimizers = self.make_optimizers()
        self.state = {"step": 0, "seconds": 0.0, "epoch": 0, "batch": 0}
        self.of = _fingerprint(args, shape, target)
        self.start()
        self.teacher = target and teacher.distributions(target, self.groups, tokens, args, os.path.join(out, "target_rows.pt"), members,
                                                        self.say)

    def say(self, text):
        if self.crew.rank == 0:
            say(f"{self.out}: {text}")

    def make_optimizers(self):
        """Muon for this process's share of the matrices of the layers and AdamW for the rest, or AdamW for all."""
        args, matrices = self.args, self.llama.matrices()
        if args.optimizer == "adamw":
            return [torch.optim.AdamW(self.llama.trained(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.05)]
        mine = matrices[self.crew.rank::self.crew.size]
        rest = [value for value in self.llama.trained() if not any(value is matrix for matrix in matrices)]
        self.others = [value for value in matrices if not any(value is matrix for matrix in mine)]
        return [arithmetic.Muon(mine, args.lr, 0.05, args.dtype),
                torch.optim.AdamW(rest, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)]

    # ---- checkpoints

    def start(self):
        path = os.path.join(self.out, "checkpoint.pt")
        if not os.path.exists(path):
            self.llama.initialise(self.args.seed)
            if self.args.start:
                for name, value in model.load(self.args.start, self.args.device).parameters.items():
                    self.llama.parameters[name].data.copy_(value.data)
            return
        saved = torch.load(path, map_location=self.args.device, weights_only=True)
        for name, value in self.llama.parameters.items():
            value.data.copy_(saved["parameters"][name])
        for optimizer, state in zip(self.optimizers, saved["optimizers"][self.crew.rank]):
            optimizer.load_state_dict(state)
        self.state = saved["state"]
        self.say(f"goes on after {self.state['step']} steps and {self.state['seconds'] / 60:.1f} minutes")

    def checkpoint(self):
        """Writes the state of the training, and the model so far as a folder that can be used."""
        optimizers = self.crew.gather([optimizer.state_dict() for optimizer in self.optimizers])
        if self.crew.rank != 0:
            return
        path = os.path.join(self.out, "checkpoint.pt")
        torch.save({"of": self.of, "parameters": {name: value.detach() for name, value in self.llama.parameters.items()},
                    "optimizers": optimizers, "state": self.state}, path + ".new")
        os.replace(path + ".new", path)
        self.llama.save(self.out, self.tokenizer_file, self.args.save_dtype)

    # ---- steps

    def rate(self):
        done = min(1, self.state["seconds"] / 60 / self.minutes)
        return self.args.lr * min(1, (self.state["step"] + 1) / WARM_UP) * (0.01 + 0.495 * (1 + math.cos(math.pi * done)))

    def loss(self, packs):
        """(what is minimised, what progress shows)"""
        batch = Batch(packs, self.args.device, 0 if self.teacher else PROMPT_SHARE)
        logits = batch.logits(self.llama)
        if self.teacher:
            ids, probabilities = (part[batch.tokens].to(self.args.device) for part in self.teacher)
            kl, distance = teacher.losses(logits, ids, probabilities)
            loss = kl + self.args.overlap_weight * distance
            if self.args.label_weight:
                loss = loss + self.args.label_weight * functional.cross_entropy(logits, batch.next, reduction="none")
            return loss.mean(), float(1 - distance.detach().mean())
        nats = functional.cross_entropy(logits, batch.next, reduction="none")
        weight = torch.where(batch.inside, 1.0, PROMPT_WEIGHT / PROMPT_SHARE)
        return (nats * weight).sum() / weight.sum(), float(nats.detach()[batch.inside].mean())

    def step(self, packs):
        with arithmetic.autocast(self.args.device, self.args.dtype):
            loss, figure = self.loss(packs)
        loss.backward()
        parameters = self.llama.trained()
        now = time.monotonic()
        totals = torch.tensor([now - self.last, figure])
        self.last = now
        self.crew.sum([parameter.grad for parameter in parameters] + [totals])
        totals /= self.crew.size
        for parameter in parameters:
            parameter.grad /= self.crew.size
        self.state["seconds"] += float(totals[0])
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate()
            optimizer.step()
        for parameter in parameters:
            parameter.grad = None
        if self.crew.size > 1 and self.args.optimizer == "muon":
            with torch.no_grad():
                for value in self.others:
                    value.zero_()
                self.crew.sum(self.llama.matrices())
        return float(totals[1])

    def groups_of(self, epoch):
        if self.variation is None:
            return self.groups
        return data.encode_rows(self.encode, self.variation.epoch(self.args.seed + epoch), self.args.context)[0]

    def run(self):
        args, state, size = self.args, self.state, self.crew.size
        self.last = time.monotonic()
        saved, shown, figures = state["seconds"], state["seconds"], []
        torch.manual_seed(args.seed + state["step"] * size + self.crew.rank)
        while state["seconds"] < 60 * self.minutes:
            batches = data.epoch_batches(self.groups_of(state["epoch"]), args.batch_tokens, args.pack_tokens, args.seed + state["epoch"])
            if len(batches) < size:
                raise data.DataError(f"{args.data}: {len(batches)} batches an epoch are too few for {size} processes: see --batch-tokens")
            while state["batch"] + size <= len(batches) and state["seconds"] < 60 * self.minutes:
                figures.append(self.step(batches[state["batch"] + self.crew.rank]))
                state["step"] += 1
                state["batch"] += size
                if state["seconds"] - shown >= args.progress:
                    self.show(state["epoch"] + state["batch"] / len(batches), sum(figures) / len(figures))
                    shown, figures = state["seconds"], []
                if state["seconds"] - saved >= 60 * args.checkpoint_minutes:
                    saved = state["seconds"]
                    self.evaluate()
                    self.checkpoint()
            if state["batch"] + size > len(batches):
                state.update(epoch=state["epoch"] + 1, batch=0)
        self.evaluate()
        self.checkpoint()
        if self.crew.rank == 0:
            for name in ("checkpoint.pt", "target_rows.pt"):
                if os.path.exists(os.path.join(self.out, name)):
                    os.remove(os.path.join(self.out, name))
        self.say(f"written after {state['step']} steps")

    def show(self, epochs, figure):
        state = self.state
        end = time.localtime(time.time() + 60 * self.minutes - state["seconds"])
        self.say(f"step {state['step']}, {state['seconds'] / 60:.1f} of {self.minutes:g} min, epoch {epochs:.2f}, "
                 + (f"overlap {figure:.4f}" if self.teacher else f"completion {figure:.4f} nats a token")
                 + f", ends about {time.strftime('%H:%M', end)}")

    def evaluate(self):
        """Shows how good the model is on rows held out. A row is right when each of its tokens is the most likely one, which is when
        greedy decoding gives it."""
        if not self.held_out or self.crew.rank != 0:
            return
        nats, tokens, wrong = 0.0, 0, []
        with torch.no_grad(), arithmetic.autocast(self.args.device, self.args.dtype):
            for packs in data.epoch_batches(self.held_out, self.args.batch_tokens, self.args.pack_tokens, 0):
                batch = Batch(packs, self.args.device, 0)
                logits = batch.logits(self.llama)
                nats += float(functional.cross_entropy(logits, batch.next, reduction="sum"))
                tokens += len(batch.next)
                misses = (logits.argmax(-1) != batch.next).float()
                wrong += torch.zeros(batch.rows, device=self.args.device).index_add_(0, batch.row, misses).tolist()
        self.say(f"held out: {nats / tokens:.4f} nats a token, greedy exact match {wrong.count(0) / len(wrong):.3f} of {len(wrong)}")
