"""The training of a draft on sampled conversations."""
import math

import torch

import arithmetic
from draft_distillation import pieces, rows
from draft_distillation.trainer import Figures, Trainer

HEAD_ROWS = 512  # positions whose logits of the whole vocabulary are computed at a time


class Training(Trainer):
    def __init__(self, args, layers, config, say):
        super().__init__(args, layers, config, [args.others, args.data], say)
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
        self.state.update(epoch=0, batch=0)
        self.resume()
        say(f"{args.out}: {self.draft.size()} trained parameters, {len(self.draft.head)} ids in the head; {self.data.tokens()} "
            f"answered tokens; {self.length()}")

    def first_conversations(self):
        return rows.batches(self.data.training, self.args.batch_tokens, self.args.seed)[0]

    def frequent(self, count):
        return rows.most_frequent(self.data.training, self.draft.config["vocab_size"], count)

    def done(self):
        return f"{self.state['epoch']} whole epochs"

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
        """(what is minimised, the overlap at each draft step)"""
        batch = rows.Batch(conversations, self.args.device)
        places = self.draft.places[batch.wanted()]
        chosen, added = self.candidates(places)
        column = torch.zeros(len(self.draft.head), dtype=torch.long, device=self.args.device)
        column[chosen] = torch.arange(len(chosen), device=self.args.device)
        loss, overlaps, weights = 0, [], 0
        with arithmetic.autocast(self.args.device, self.args.dtype):
            said = self.draft.steps(batch, self.states(batch))
        for step in said:
            with arithmetic.autocast(self.args.device, self.args.dtype):
                logits = self.draft.logits(step.states, chosen, step.before)
            wanted = step.of(places)
            total = (logits + added).logsumexp(1, keepdim=True)
            log_q = torch.where(wanted >= 0, logits.gather(1, column[wanted.clamp(min=0)]) - total, -math.inf)
            kl, overlap = rows.losses(step.of(batch), log_q[:, :-1], log_q[:, -1])
            loss = loss + step.weight * (kl + self.args.overlap_weight * (1 - overlap)).sum() / max(1, len(kl))
            weights += step.weight
            overlaps.append(overlap.detach().sum() / max(1, len(kl)))
        return loss / weights, torch.stack(overlaps)

    def learn(self, conversations):
        loss, overlap = self.loss(conversations)
        loss.backward()
        return overlap

    def steps(self):
        state = self.state
        while self.left():
            self.data.look()
            batches = rows.batches(self.data.training, self.args.batch_tokens, self.args.seed + state["epoch"])
            while state["batch"] < len(batches) and self.left():
                state["batch"] += 1
                yield f"epoch {state['epoch'] + state['batch'] / len(batches):.2f}", batches[state["batch"] - 1]
            if state["batch"] >= len(batches):
                state.update(epoch=state["epoch"] + 1, batch=0)

    def measure(self):
        for folder, conversations in self.data.held_out.items():
            held_out = conversations[:self.args.held_out]
            if held_out:
                self.show_held_out(measure(self.draft, held_out, self.args, self.states), len(held_out),
                                   folder if len(self.data.held_out) > 1 else None)


def measure(draft, conversations, args, states):
    """Figures with the draft's whole head. states: a function of rows.Places, for a draft that takes those of its target."""
    figures = Figures(draft.draft_steps)
    with torch.no_grad(), arithmetic.autocast(args.device, args.dtype):
        for group in rows.batches(conversations, args.batch_tokens, 0):
            batch = rows.Batch(group, args.device)
            places = draft.places[batch.wanted()]
            for number, step in enumerate(draft.steps(batch, states(batch))):
                wanted = step.of(places)
                log_q = torch.empty(wanted.shape, device=args.device)
                for begin in range(0, len(wanted), HEAD_ROWS):
                    part = slice(begin, begin + HEAD_ROWS)
                    logits = draft.logits(step.states[part], None, None if step.before is None else step.before[part])
                    said = logits.log_softmax(1).gather(1, wanted[part].clamp(min=0))
                    log_q[part] = torch.where(wanted[part] >= 0, said, -math.inf)
                figures.add(number, *rows.losses(step.of(batch), log_q[:, :-1], log_q[:, -1]))
            figures.tokens += len(batch.where)
    return figures
