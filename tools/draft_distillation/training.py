"""The training of a draft on sampled conversations: steps, checkpoints, progress."""
import hashlib
import json
import math
import os
import time

import torch

import arithmetic
from draft_distillation import pieces, rows, tensors
from draft_distillation.decoder import Decoder

HEAD_IDS = 8192  # of a head, unless they are asked for
WARM_UP = 30     # steps
HEAD_ROWS = 512  # positions whose logits of the whole vocabulary are computed at a time


class Training:
    """`run` ends when the time is over. The same command goes on from the last checkpoint."""

    def __init__(self, args, layers, config, say):
        self.args, self.say = args, say
        self.data = rows.Conversations(args.data, args.context)
        if self.data.vocab != config["vocab_size"]:
            raise pieces.DataError(f"{args.data[0]}: is of a vocabulary of {self.data.vocab}, {args.target} has {config['vocab_size']}")
        held_out = sum(map(len, self.data.held_out.values()))
        if not self.data.training or not held_out:
            raise pieces.DataError(f"{', '.join(args.data)}: {len(self.data.training)} conversations to train on and {held_out} held "
                                   "out are too few (distill_draft.py sample writes more)")
        for folder, count in self.data.too_long.items():
            if count:
                say(f"{folder}: {count} conversations are left out: their prompts have {args.context} tokens or more (--context)")
        self.draft = Decoder(config, args.target, layers, args.device)
        self.optimizers = self.make_optimizers()
        self.state = {"step": 0, "seconds": 0.0, "epoch": 0, "batch": 0}
        options = [getattr(args, name) for name in ("seed", "lr", "batch_tokens", "context", "overlap_weight", "others", "optimizer", "start", "data")]
        options.append(args.head_ids or args.start or HEAD_IDS)
        self.of = hashlib.sha256(json.dumps([config, layers, options]).encode()).hexdigest()
        os.makedirs(args.out, exist_ok=True)
        self.path = os.path.join(args.out, "checkpoint.pt")
        self.trained = os.path.join(args.out, "trained")
        self.resume()
        say(f"{args.out}: {self.draft.size()} trained parameters, {len(self.draft.head)} ids in the head; {self.data.tokens()} "
            f"answered tokens; {args.minutes:g} minutes")

    def make_optimizers(self):
        """Muon for the matrices and AdamW for the gains of the norms, or AdamW for all."""
        args, values = self.args, self.draft.parameters.values()
        if args.optimizer == "adamw":
            return [torch.optim.AdamW(values, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.01)]
        return [arithmetic.Muon([value for value in values if value.dim() == 2], args.lr, 0.01, args.dtype),
                torch.optim.AdamW([value for value in values if value.dim() != 2], lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)]

    # ---- checkpoints

    def resume(self):
        if not os.path.exists(self.path):
            start, wanted, vocab = self.args.start, self.args.head_ids, len(self.draft.head)
            if start:
                self.draft.take(start, head=not wanted)
            if (wanted or not start) and (wanted or HEAD_IDS) < vocab:
                self.draft.keep_rows(rows.most_frequent(self.data.training, vocab, wanted or HEAD_IDS))
            return
        saved = torch.load(self.path, map_location=self.args.device, weights_only=True)
        if saved["of"] != self.of:
            raise pieces.DataError(f"{self.path}: is of a training with other options; remove it to start anew")
        for name, value in self.draft.parameters.items():
            value.data.copy_(saved["parameters"][name])
        if saved["head_ids"] is not None:
            self.draft.keep_rows(saved["head_ids"].numpy())
        for optimizer, state in zip(self.optimizers, saved["optimizers"]):
            optimizer.load_state_dict(state)
        self.state = saved["state"]
        self.say(f"{self.args.out}: goes on after {self.state['step']} steps and {self.state['seconds'] / 60:.1f} minutes")

    def checkpoint(self):
        """Writes the state of the training, and the draft so far as a folder that can be used."""
        torch.save({"of": self.of, "parameters": {name: value.detach() for name, value in self.draft.parameters.items()},
                    "head_ids": None if self.draft.kept is None else torch.from_numpy(self.draft.kept),
                    "optimizers": [optimizer.state_dict() for optimizer in self.optimizers], "state": self.state}, self.path + ".new")
        os.replace(self.path + ".new", self.path)
        self.write()

    def write(self):
        self.draft.save(self.trained)
        tensors.put_together(self.trained, self.args.target, self.args.out)

    # ---- steps

    def rate(self):
        """Constant after the warm-up; falls to nearly nothing in the last part of the time."""
        left = 1 - min(1, self.state["seconds"] / 60 / self.args.minutes)
        return self.args.lr * min(1, (self.state["step"] + 1) / WARM_UP) * max(0.01, min(1, left / self.args.fall))

    def candidates(self, places):
        """(rows of the head that stand for all in a step, what is added to the logits of each). Those that the batch asks for, and
        some of the others, which count for all others."""
        needed = torch.zeros(len(self.draft.head), dtype=torch.bool)
        needed[places[places >= 0].cpu()] = True
        others = (~needed).nonzero().view(-1)
        drawn = others[torch.randperm(len(others))[:self.args.others]]
        chosen = torch.cat([needed.nonzero().view(-1), drawn])
        added = torch.zeros(len(chosen))
        if len(drawn):
            added[len(chosen) - len(drawn):] = math.log(len(others) / len(drawn))
        return chosen.to(self.args.device), added.to(self.args.device)

    def loss(self, conversations):
        """(what is minimised, the overlap)"""
        batch = rows.Batch(conversations, self.args.device)
        places = self.draft.places[batch.wanted()]
        chosen, added = self.candidates(places)
        column = torch.zeros(len(self.draft.head), dtype=torch.long, device=self.args.device)
        column[chosen] = torch.arange(len(chosen), device=self.args.device)
        with arithmetic.autocast(self.args.device, self.args.dtype):
            logits = self.draft.logits(batch.states(self.draft), chosen)
        total = (logits + added).logsumexp(1, keepdim=True)
        log_q = torch.where(places >= 0, logits.gather(1, column[places.clamp(min=0)]) - total, -math.inf)
        kl, overlap = rows.losses(batch, log_q[:, :-1], log_q[:, -1])
        return (kl + self.args.overlap_weight * (1 - overlap)).mean(), float(overlap.detach().mean())

    def step(self, conversations):
        loss, overlap = self.loss(conversations)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.draft.parameters.values(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        now = time.monotonic()
        self.state["seconds"] += now - self.last
        self.last = now
        return overlap

    def run(self):
        args, state = self.args, self.state
        if state["step"] == 0:
            self.measure()
        self.last = time.monotonic()
        saved = shown = state["seconds"]
        figures = []
        while state["seconds"] < 60 * args.minutes:
            self.data.look()
            batches = rows.batches(self.data.training, args.batch_tokens, args.seed + state["epoch"])
            while state["batch"] < len(batches) and state["seconds"] < 60 * args.minutes:
                torch.manual_seed(args.seed + state["step"])
                figures.append(self.step(batches[state["batch"]]))
                state["step"] += 1
                state["batch"] += 1
                if state["seconds"] - shown >= args.progress:
                    self.show(state["epoch"] + state["batch"] / len(batches), sum(figures) / len(figures))
                    shown, figures = state["seconds"], []
                if state["seconds"] - saved >= 60 * args.checkpoint_minutes:
                    saved = state["seconds"]
                    self.measure()
                    self.checkpoint()
            if state["batch"] >= len(batches):
                state.update(epoch=state["epoch"] + 1, batch=0)
        self.measure()
        self.write()
        if os.path.exists(self.path):
            os.remove(self.path)
        self.say(f"{args.out}: written after {state['step']} steps, {state['epoch']} whole epochs")

    def show(self, epochs, overlap):
        state = self.state
        end = time.localtime(time.time() + 60 * self.args.minutes - state["seconds"])
        self.say(f"step {state['step']}, {state['seconds'] / 60:.1f} of {self.args.minutes:g} min, epoch {epochs:.2f}, "
                 f"overlap {overlap:.4f}, ends about {time.strftime('%H:%M', end)}")

    def measure(self):
        for folder, conversations in self.data.held_out.items():
            held_out = conversations[:self.args.held_out]
            if held_out:
                overlap, kl, tokens = measure(self.draft, held_out, self.args)
                self.say(f"held out: overlap {overlap:.4f}, KL divergence {kl:.4f} nats, {tokens} tokens of {len(held_out)} answers"
                         + (f" of {folder}" if len(self.data.held_out) > 1 else ""))


def measure(draft, conversations, args):
    """(mean overlap, mean KL divergence, tokens) with the draft's whole head."""
    overlaps = kls = count = 0
    with torch.no_grad(), arithmetic.autocast(args.device, args.dtype):
        for group in rows.batches(conversations, args.batch_tokens, 0):
            batch = rows.Batch(group, args.device)
            states = batch.states(draft)
            places = draft.places[batch.wanted()]
            log_q = torch.empty(places.shape, device=args.device)
            for begin in range(0, len(states), HEAD_ROWS):
                part = slice(begin, begin + HEAD_ROWS)
                said = draft.logits(states[part]).log_softmax(1).gather(1, places[part].clamp(min=0))
                log_q[part] = torch.where(places[part] >= 0, said, -math.inf)
            kl, overlap = rows.losses(batch, log_q[:, :-1], log_q[:, -1])
            overlaps, kls, count = overlaps + float(overlap.sum()), kls + float(kl.sum()), count + len(states)
    return overlaps / count, kls / count, count
