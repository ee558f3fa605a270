"""What trainings of a draft have in common: optimizers, checkpoints, the learning rate, progress."""
import hashlib
import json
import os
import time

import numpy
import torch

import arithmetic
from draft_distillation import kinds, pieces, rows
from draft_distillation.decoder import Decoder

HEAD_IDS = 8192  # of a head, unless they are asked for
WARM_UP = 30     # steps


class Trainer:
    """A training yields batches while there is time (`steps`: what is said of the progress, the batch), gets gradients of one (`learn`, which returns
    the overlap at each draft step), says which ids are the most used (`frequent`), measures (`measure`) and says what it did (`done`). `run` ends when the time is over. The same
    command goes on from the last checkpoint; `state` is kept in it."""

    def __init__(self, args, layers, config, options, say):
        """options: what a checkpoint must have in common with the command, beside those of all trainings."""
        self.args, self.say = args, say
        self.draft = kinds.new_draft(args, config, layers)
        self.target = None
        if self.draft.takes_states:
            self.target = self.whole_target(config)
            self.draft.embedding, self.draft.head = self.target.embedding, self.target.head  # once in memory
        self.optimizers = self.make_optimizers()
        self.state = {"step": 0, "seconds": 0.0}
        common = [getattr(args, name) for name in ("seed", "lr", "batch_tokens", "context", "overlap_weight", "optimizer", "start")]
        common.append(args.head_ids or args.start or HEAD_IDS)
        if args.kind != "layers":
            common += [args.kind, self.draft.state_layers, self.draft.draft_steps, args.markov_rank, args.blocks]
        if args.steps:
            common.append(args.steps)
        self.of = hashlib.sha256(json.dumps([config, layers, common, options]).encode()).hexdigest()
        os.makedirs(args.out, exist_ok=True)
        self.path = os.path.join(args.out, "checkpoint.pt")

    def whole_target(self, config):
        """The target in PyTorch, which is only asked."""
        return Decoder(config, self.args.target, range(config["num_hidden_layers"]), self.args.device).freeze(self.args.dtype)

    def make_optimizers(self):
        """Muon for the matrices and AdamW for the gains of the norms, or AdamW for all; AdamW for those that have rates of their own."""
        args, named = self.args, self.draft.parameters
        values = [value for name, value in named.items() if name not in self.draft.rates]
        slow = [{"params": [named[name]], "share": share} for name, share in self.draft.rates.items() if name in named]
        made = [torch.optim.AdamW(slow, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)] if slow else []
        if args.optimizer == "adamw":
            return [torch.optim.AdamW(values, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.01), *made]
        return [arithmetic.Muon([value for value in values if value.dim() == 2], args.lr, 0.01, args.dtype),
                torch.optim.AdamW([value for value in values if value.dim() != 2], lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0), *made]

    # ---- checkpoints

    def resume(self):
        """From the checkpoint, or from --start, or from the target's own layers."""
        start, wanted, found = self.args.start, self.args.head_ids, os.path.exists(self.path)
        if self.draft.takes_states and not found:
            with torch.no_grad():
                self.draft.scale_states(self.states(rows.Places(self.first_conversations(), self.args.device)).flatten(0, 1))
        if start:
            self.draft.take(start, head=not wanted)
        elif self.draft.takes_states and not found:
            self.draft.start(self.frequent)
        if found:
            self.resume_from(torch.load(self.path, map_location=self.args.device, weights_only=True))
        elif not self.draft.whole_head and (wanted or not start) and (wanted or HEAD_IDS) < len(self.draft.head):
            self.draft.keep_rows(self.frequent(wanted or HEAD_IDS))

    def resume_from(self, saved):
        """saved: what `checkpoint` wrote."""
        if saved["of"] != self.of:
            raise pieces.DataError(f"{self.path}: is of a training with other options; remove it to start anew")
        for kept, values in ((saved["parameters"], self.draft.parameters), (saved["fixed"], self.draft.fixed)):
            for name, value in values.items():
                value.data.copy_(kept[name])
        if saved["draft_vocabulary"] is not None and self.draft.kept is None:
            self.draft.keep_rows(saved["draft_vocabulary"].cpu().numpy())
        for optimizer, state in zip(self.optimizers, saved["optimizers"]):
            optimizer.load_state_dict(state)
        self.state = saved["state"]
        self.say(f"{self.args.out}: goes on after {self.state['step']} steps and {self.state['seconds'] / 60:.1f} minutes")

    def checkpoint(self):
        """Writes the state of the training, and the draft so far as a folder that can be used."""
        torch.save({"of": self.of, "parameters": {name: value.detach() for name, value in self.draft.parameters.items()},
                    "fixed": self.draft.fixed, "draft_vocabulary": None if self.draft.kept is None else torch.from_numpy(self.draft.kept),
                    "optimizers": [optimizer.state_dict() for optimizer in self.optimizers], "state": self.state}, self.path + ".new")
        os.replace(self.path + ".new", self.path)
        self.write()

    def write(self):
        self.draft.write(self.args.out, self.args.target)

    # ---- steps

    def states(self, places):
        """What the target says to a draft that takes states [lines, time, columns]; None to one that does not."""
        if not self.draft.takes_states:
            return None
        with torch.no_grad():
            return self.target.with_states(places.ids, self.draft.state_layers)[1]

    def length(self):
        """How long the training is, to be shown."""
        return f"{self.args.steps} steps" if self.args.steps else f"{self.args.minutes:g} minutes"

    def done_share(self):
        """Of the training."""
        args = self.args
        return self.state["step"] / args.steps if args.steps else self.state["seconds"] / 60 / args.minutes

    def rate(self):
        """Constant after the warm-up; falls to nearly nothing in the last part of the training."""
        left = 1 - min(1, self.done_share())
        return self.args.lr * min(1, (self.state["step"] + 1) / WARM_UP) * max(0.01, min(1, left / self.args.fall))

    def update(self):
        """Moves the parameters by their gradients."""
        torch.nn.utils.clip_grad_norm_(self.draft.parameters.values(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate() * group.get("share", 1)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def left(self):
        """Counts the time since the last call; whether any of the training is left."""
        now = time.monotonic()
        self.state["seconds"] += now - self.last
        self.last = now
        return self.done_share() < 1

    def run(self):
        args, state = self.args, self.state
        if state["step"] == 0:
            self.measure()
        self.last = time.monotonic()
        saved = shown = state["seconds"]
        figures = []
        for progress, batch in self.steps():
            torch.manual_seed(args.seed + state["step"])
            figures.append(self.learn(batch))
            self.update()
            state["step"] += 1
            self.left()
            if state["seconds"] - shown >= args.progress:
                self.show(progress, listed(sum(figures) / len(figures)))
                shown, figures = state["seconds"], []
            if state["seconds"] - saved >= 60 * args.checkpoint_minutes:
                saved = state["seconds"]
                self.measure()
                self.checkpoint()
        self.measure()
        self.write()
        if os.path.exists(self.path):
            os.remove(self.path)
        self.say(f"{args.out}: written after {state['step']} steps, {self.done()}")

    def show(self, progress, overlap):
        state, args = self.state, self.args
        of = f"step {state['step']} of {args.steps}, {state['seconds'] / 60:.1f} min" if args.steps else \
            f"step {state['step']}, {state['seconds'] / 60:.1f} of {args.minutes:g} min"
        end = time.localtime(time.time() + state["seconds"] * (1 / max(self.done_share(), 1e-9) - 1))
        self.say(f"{of}, {progress}, overlap {overlap}, ends about {time.strftime('%H:%M', end)}")

    def show_held_out(self, figures, answers, folder=None):
        self.say(f"held out: {figures}, {figures.tokens} tokens of {answers} answers" + (f" of {folder}" if folder else ""))


class Figures:
    """The mean overlap and KL divergence at each draft step."""

    def __init__(self, draft_steps):
        self.sums, self.tokens = numpy.zeros((3, draft_steps)), 0

    def add(self, step, kl, overlap):
        """Of all rows of a draft step."""
        self.sums[:, step] += float(overlap.sum()), float(kl.sum()), len(kl)

    def __add__(self, other):
        both = Figures(self.sums.shape[1])
        both.sums, both.tokens = self.sums + other.sums, self.tokens + other.tokens
        return both

    def __str__(self):
        overlap, kl = self.sums[:2] / numpy.maximum(self.sums[2], 1)
        return f"overlap {listed(overlap)}, KL divergence {listed(kl)} nats"


def listed(values):
    """One number for each draft step."""
    return " ".join(f"{float(value):.4f}" for value in values)
