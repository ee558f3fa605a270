"""The training of a draft on sampled conversations: steps, checkpoints, progress."""
import hashlib
import json
import math
import os
import time

import llama_folder
import numpy
import torch
from pair_training import model
from torch.nn import functional

from draft_distillation import pieces, rows, start

WARM_UP = 50    # steps
HEAD_ROWS = 512  # positions whose logits of the whole vocabulary are computed at a time


class Training:
    """`run` ends when the time is over. The same command goes on from the last checkpoint."""

    def __init__(self, args, shape, config, say):
        self.args, self.say, self.target_config = args, say, config
        self.shape = dict(shape, vocab=config["vocab_size"], context=config["max_position_embeddings"])
        self.data = rows.Conversations(args.data, args.context)
        if not self.data.training or not self.data.held_out:
            raise pieces.DataError(f"{args.data}: {len(self.data.training)} conversations to train on and {len(self.data.held_out)} held "
                                   "out are too few (distill_draft.py sample writes more)")
        os.makedirs(args.out, exist_ok=True)
        self.path = os.path.join(args.out, "checkpoint.pt")
        self.llama = model.Llama(self.shape, args.device)
        self.optimizers = self.make_optimizers()
        self.state = {"step": 0, "seconds": 0.0, "epoch": 0, "batch": 0}
        text = json.dumps([self.shape] + [getattr(args, name) for name in ("seed", "lr", "batch_tokens", "optimizer", "context")])
        self.of = hashlib.sha256(text.encode()).hexdigest()
        self.begin()
        say(f"{args.out}: {self.llama.size()} parameters, {self.llama.size() * 2 / 2 ** 20:.1f} MiB in bf16; "
            f"{self.data.tokens()} answered tokens; {args.minutes:g} minutes")

    def make_optimizers(self):
        """Muon for the matrices of the layers and AdamW for the rest, or AdamW for all."""
        args, matrices = self.args, self.llama.matrices()
        rest = [value for value in self.llama.parameters.values() if not any(value is matrix for matrix in matrices)]
        table = self.llama.parameters[start.EMBEDDING]
        groups = [{"params": [v for v in rest if v is not table], "share": 1.0}, {"params": [table], "share": args.embedding_share}]
        if args.optimizer == "adamw":
            return [torch.optim.AdamW([{"params": matrices, "share": 1.0}, *groups], lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)]
        return [torch.optim.Muon([{"params": matrices, "share": 1.0}], lr=args.lr, weight_decay=0.05, ns_steps=4,
                                 adjust_lr_fn="match_rms_adamw"),
                torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)]

    # ---- checkpoints

    def begin(self):
        if os.path.exists(self.path):
            saved = torch.load(self.path, map_location=self.args.device, weights_only=True)
            if saved["of"] != self.of:
                raise pieces.DataError(f"{self.path}: is of a training with other options; remove it to start anew")
            for name, value in self.llama.parameters.items():
                value.data.copy_(saved["parameters"][name])
            for optimizer, state in zip(self.optimizers, saved["optimizers"]):
                optimizer.load_state_dict(state)
            self.state = saved["state"]
            self.say(f"{self.args.out}: goes on after {self.state['step']} steps and {self.state['seconds'] / 60:.1f} minutes")
            return
        self.llama.initialise(self.args.seed)
        if not self.args.random_start:
            counts = numpy.bincount(numpy.concatenate([c["ids"] for c in self.data.training]), minlength=self.shape["vocab"])
            table = start.embedding(self.args.target, self.shape["hidden"], counts)
            self.llama.parameters[start.EMBEDDING].data.copy_(torch.from_numpy(table))

    def checkpoint(self):
        """Writes the state of the training, and the draft so far as a folder that can be used."""
        torch.save({"of": self.of, "parameters": {name: value.detach() for name, value in self.llama.parameters.items()},
                    "optimizers": [optimizer.state_dict() for optimizer in self.optimizers], "state": self.state}, self.path + ".new")
        os.replace(self.path + ".new", self.path)
        self.write()

    def write(self):
        tensors = {}
        for name, value in self.llama.parameters.items():
            tensors[name] = (tuple(value.shape), value.detach().cpu().to(torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes())
        config = llama_folder.config(**self.shape, kv_heads=self.shape["heads"], torch_dtype="bfloat16")
        config.update({name: self.target_config[name] for name in ("bos_token_id", "eos_token_id") if name in self.target_config})
        llama_folder.write_folder(self.args.out, config, tensors, "BF16")

    # ---- steps

    def rate(self):
        """Constant after the warm-up; falls to nothing in the last part of the time."""
        done = min(1, self.state["seconds"] / 60 / self.args.minutes)
        fall = min(1, (1 - done) / self.args.fall)
        return self.args.lr * min(1, (self.state["step"] + 1) / WARM_UP) * max(0.005, fall)

    def candidates(self, batch):
        """(ids whose logits stand for the vocabulary in a step, what is added to those of each). The ids that the batch asks for, and
        some of the others, which count for all others."""
        vocab, args = self.shape["vocab"], self.args
        needed = torch.zeros(vocab, dtype=torch.bool)
        needed[batch.top.reshape(-1).cpu()] = True
        needed[batch.own.cpu()] = True
        others = (~needed).nonzero().view(-1)
        drawn = others[torch.randperm(len(others))[:args.others]]
        ids = torch.cat([needed.nonzero().view(-1), drawn])
        added = torch.zeros(len(ids))
        if len(drawn):
            added[len(ids) - len(drawn):] = math.log(len(others) / len(drawn))
        return ids.to(args.device), added.to(args.device)

    def loss(self, conversations):
        batch = rows.Batch(conversations, self.args.device)
        ids, added = self.candidates(batch)
        place = torch.zeros(self.shape["vocab"], dtype=torch.long, device=self.args.device)
        place[ids] = torch.arange(len(ids), device=self.args.device)
        with model.autocast(self.args.device, self.args.dtype):
            states = batch.states(self.llama)
            logits = functional.linear(states, self.llama.parameters[start.EMBEDDING][ids]).float()
        total = (logits + added).logsumexp(1, keepdim=True)
        wanted = torch.cat([batch.top, batch.own[:, None]], 1)
        log_q = logits.gather(1, place[wanted]) - total
        kl, overlap = rows.losses(batch, log_q[:, :-1], log_q[:, -1])
        return (kl + self.args.overlap_weight * (1 - overlap)).mean(), float(overlap.detach().mean())

    def step(self, conversations):
        loss, overlap = self.loss(conversations)
        loss.backward()
        parameters = list(self.llama.parameters.values())
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate() * group["share"]
            optimizer.step()
        for parameter in parameters:
            parameter.grad = None
        now = time.monotonic()
        self.state["seconds"] += now - self.last
        self.last = now
        return overlap

    def run(self):
        args, state = self.args, self.state
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
        self.say(f"{args.out}: written after {state['step']} steps and {state['epoch']} epochs")

    def show(self, epochs, overlap):
        state = self.state
        end = time.localtime(time.time() + 60 * self.args.minutes - state["seconds"])
        self.say(f"step {state['step']}, {state['seconds'] / 60:.1f} of {self.args.minutes:g} min, epoch {epochs:.2f}, "
                 f"overlap {overlap:.4f}, ends about {time.strftime('%H:%M', end)}")

    def measure(self):
        overlap, kl, tokens = measure(self.llama, self.data.held_out[:self.args.held_out], self.args)
        self.say(f"held out: overlap {overlap:.4f}, KL divergence {kl:.4f} nats, {tokens} tokens of "
                 f"{len(self.data.held_out[:self.args.held_out])} answers")


def measure(llama, conversations, args):
    """(mean overlap, mean KL divergence, tokens) with the draft's whole vocabulary."""
    overlaps = kls = count = 0
    with torch.no_grad(), model.autocast(args.device, args.dtype):
        for group in rows.batches(conversations, args.batch_tokens, 0):
            batch = rows.Batch(group, args.device)
            states = batch.states(llama)
            log_q = torch.empty(len(states), batch.top.shape[1] + 1, device=args.device)
            wanted = torch.cat([batch.top, batch.own[:, None]], 1)
            for begin in range(0, len(states), HEAD_ROWS):
                part = slice(begin, begin + HEAD_ROWS)
                log_q[part] = llama.head(states[part]).log_softmax(1).gather(1, wanted[part])
            kl, overlap = rows.losses(batch, log_q[:, :-1], log_q[:, -1])
            overlaps, kls, count = overlaps + float(overlap.sum()), kls + float(kl.sum()), count + len(states)
    return overlaps / count, kls / count, count
