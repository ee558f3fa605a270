"""What trainings of a draft have in common: optimizers, checkpoints, the learning rate, progress."""
import hashlib
import json
import os
import time

import torch

import arithmetic
from draft_distillation import pieces, tensors
from draft_distillation.decoder import Decoder

HEAD_IDS = 8192  # of a head, unless they are asked for
WARM_UP = 30     # steps


class Trainer:
    """A training yields batches while there is time (`steps`: what is said of the progress, the batch), gets gradients of one (`learn`, which returns
    the overlap), says which ids are the most used (`frequent`), measures (`measure`) and says what it did (`done`). `run` ends when the time is over. The same
    command goes on from the last checkpoint; `state` is kept in it."""

    def __init__(self, args, layers, config, options, say):
        """options: what a checkpoint must have in common with the command, beside those of all trainings."""
        self.args, self.say = args, say
        self.draft = Decoder(config, args.target, layers, args.device)
        self.optimizers = self.make_optimizers()
        self.state = {"step": 0, "seconds": 0.0}
        common = [getattr(args, name) for name in ("seed", "lr", "batch_tokens", "context", "overlap_weight", "optimizer", "start")]
        common.append(args.head_ids or args.start or HEAD_IDS)
        self.of = hashlib.sha256(json.dumps([config, layers, common, options]).encode()).hexdigest()
        os.makedirs(args.out, exist_ok=True)
        self.path = os.path.join(args.out, "checkpoint.pt")
        self.trained = os.path.join(args.out, "trained")

    def make_optimizers(self):
        """Muon for the matrices and AdamW for the gains of the norms, or AdamW for all."""
        args, values = self.args, self.draft.parameters.values()
        if args.optimizer == "adamw":
            return [torch.optim.AdamW(values, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.01)]
        return [arithmetic.Muon([value for value in values if value.dim() == 2], args.lr, 0.01, args.dtype),
                torch.optim.AdamW([value for value in values if value.dim() != 2], lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)]

    # ---- checkpoints

    def resume(self):
        """From the checkpoint, or from --start, or from the target's own layers."""
        if not os.path.exists(self.path):
            start, wanted, vocab = self.args.start, self.args.head_ids, len(self.draft.head)
            if start:
                self.draft.take(start, head=not wanted)
            if (wanted or not start) and (wanted or HEAD_IDS) < vocab:
                self.draft.keep_rows(self.frequent(wanted or HEAD_IDS))
            return
        saved = torch.load(self.path, map_location=self.args.device, weights_only=True)
        if saved["of"] != self.of:
            raise pieces.DataError(f"{self.path}: is of a training with other options; remove it to start anew")
        for name, value in self.draft.parameters.items():
            value.data.copy_(saved["parameters"][name])
        if saved["draft_vocabulary"] is not None:
            self.draft.keep_rows(saved["draft_vocabulary"].cpu().numpy())
        for optimizer, state in zip(self.optimizers, saved["optimizers"]):
            optimizer.load_state_dict(state)
        self.state = saved["state"]
        self.say(f"{self.args.out}: goes on after {self.state['step']} steps and {self.state['seconds'] / 60:.1f} minutes")

    def checkpoint(self):
        """Writes the state of the training, and the draft so far as a folder that can be used."""
        torch.save({"of": self.of, "parameters": {name: value.detach() for name, value in self.draft.parameters.items()},
                    "draft_vocabulary": None if self.draft.kept is None else torch.from_numpy(self.draft.kept),
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

    def update(self):
        """Moves the parameters by their gradients."""
        torch.nn.utils.clip_grad_norm_(self.draft.parameters.values(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.rate()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def left(self):
        """Counts the time since the last call; whether any is left."""
        now = time.monotonic()
        self.state["seconds"] += now - self.last
        self.last = now
        return self.state["seconds"] < 60 * self.args.minutes

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
                self.show(progress, float(sum(figures)) / len(figures))
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
        state = self.state
        end = time.localtime(time.time() + 60 * self.args.minutes - state["seconds"])
        self.say(f"step {state['step']}, {state['seconds'] / 60:.1f} of {self.args.minutes:g} min, {progress}, "
                 f"overlap {overlap:.4f}, ends about {time.strftime('%H:%M', end)}")

    def show_held_out(self, figures, folder=None):
        overlap, kl, tokens, answers = figures
        self.say(f"held out: overlap {overlap:.4f}, KL divergence {kl:.4f} nats, {tokens} tokens of {answers} answers" + (f" of {folder}" if folder else ""))
