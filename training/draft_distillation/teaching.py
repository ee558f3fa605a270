"""The training of a draft by a target in the same process: it answers, and says the distribution of every place of its answers. What is trained on is
always new: a lesson is a number of conversations that are sampled, then learned from."""
import time

import torch

import arithmetic
from draft_distillation import rows
from draft_distillation.asking import Asker, Target
from draft_distillation.chat import Chat
from draft_distillation.pieces import HELD_OUT, DataError
from draft_distillation.sampling import ends_of
from draft_distillation.trainer import Figures, Trainer

OWN = "its own questions"
ONLY_MEASURED = 1 << 40  # added to the numbers of lessons for generators of conversations that are not trained on


def cache_room(decoder, gib, device):
    """Positions whose keys and values take this memory; by default a quarter of what is free on a device, 1 GiB on a CPU."""
    if not gib:
        gib = torch.cuda.mem_get_info(device)[0] / 4 / 2**30 if device.startswith("cuda") else 1
    shape = decoder.shape
    position = 2 * decoder.layers * shape["kv_heads"] * shape["head_dim"] * next(iter(decoder.parameters.values())).element_size()
    return max(1, int(gib * 2**30 / position))


class Teaching(Trainer):
    """prompts, texts: {path: those of the file}. only_measured: {path: prompts}. Each of prompts and texts, and the target's own questions, gets
    as many conversations of a lesson."""

    def __init__(self, args, layers, config, prompts, texts, only_measured, say):
        options = [args.answer_tokens, args.question_tokens, args.question_temperature, args.parallel, args.epochs, args.dtype, list(prompts), list(texts)]
        super().__init__(args, layers, config, options, say)
        self.head_rows = 512 if args.device == "cpu" else 8192  # positions whose distributions are computed at a time
        self.target = self.target or self.whole_target(config)
        chat = Chat(args.target)
        if not chat.template and (texts or not prompts):
            raise DataError(f"{args.target}: has no chat template, so the target cannot invent questions: give --prompts alone")
        if args.no_own and not prompts and not texts:
            raise DataError("--no-own: needs --prompts or --texts")
        writer = Target(self.target, ends_of(config), cache_room(self.target, args.cache_gib, args.device), args)
        self.askers = {path: Asker(writer, chat, args, prompts=of_file) for path, of_file in prompts.items()}
        self.askers |= {path: Asker(writer, chat, args, texts=of_file) for path, of_file in texts.items()}
        if chat.template and not args.no_own:
            self.askers[OWN] = Asker(writer, chat, args)
        self.state.update(lesson=0, tokens=0)
        self.held_out = self.answered(range(0, args.held_out * HELD_OUT, HELD_OUT), self.askers)
        for place, (path, of_file) in enumerate(only_measured.items()):
            self.held_out |= self.answered(range(len(of_file)), {path: Asker(writer, chat, args, prompts=of_file)}, place + 1)
        self.first = None  # the first lesson, if it was needed before
        self.resume()
        self.said = slice(None) if self.draft.kept is None else torch.from_numpy(self.draft.kept).to(args.device)  # ids that the draft can say
        say(f"{args.out}: {self.draft.size()} trained parameters, {len(self.draft.head)} ids in the head; {self.length()}")

    def answered(self, numbers, askers, place=0):
        """{source: conversations} that are only measured."""
        began, found = time.monotonic(), {}
        for name, asker in askers.items():
            found[name] = asker.conversations(numbers, self.generator(ONLY_MEASURED + place))
            self.tell_left_out(name, asker)
        tokens = sum(map(answered_tokens, found.values()))
        if not tokens:
            raise DataError(f"{', '.join(found)}: no prompt is short enough for --context {self.args.context} and answers of {self.args.answer_tokens} tokens")
        self.say(f"to measure: {tokens} answered tokens sampled, {tokens / (time.monotonic() - began):.0f} a second")
        return found

    def tell_left_out(self, name, asker):
        if asker.left_out:
            self.say(f"{name}: {asker.left_out} conversations are left out: their prompts are too long (--context)")
            asker.left_out = 0

    def generator(self, number):
        return torch.Generator(self.args.device).manual_seed((self.args.seed << 44) + number)

    def sample(self, number):
        """The conversations of a lesson. One of HELD_OUT numbers is never among them."""
        began, found = time.monotonic(), []
        first = number * self.args.parallel
        numbers = [1 + i + i // (HELD_OUT - 1) for i in range(first, first + self.args.parallel)]
        for place, (name, asker) in enumerate(self.askers.items()):
            found += asker.conversations(numbers, self.generator(number * len(self.askers) + place))
            self.tell_left_out(name, asker)
        tokens = answered_tokens(found)
        self.say(f"lesson {number + 1}: {tokens} answered tokens sampled, {tokens / (time.monotonic() - began):.0f} a second")
        return found

    def first_conversations(self):
        self.first = self.first or self.sample(0)
        return rows.batches(self.first, self.args.batch_tokens, self.args.seed)[0]

    def frequent(self, count):
        """By the probability that the target gives them in the answers of the first lesson."""
        self.first = self.first or self.sample(0)
        mass = torch.zeros(len(self.target.head), device=self.args.device)
        with torch.no_grad(), arithmetic.autocast(self.args.device, self.args.dtype):
            for group in rows.batches(self.first, self.args.batch_tokens, 0):
                states = rows.Places(group, self.args.device).states(self.target)
                for part in states.split(self.head_rows):
                    mass += self.target.logits(part).softmax(-1).sum(0)
        return mass.topk(count).indices.sort().values.cpu().numpy()

    def losses(self, own, target, before=None):
        """(forward KL divergence over the ids that the draft can say, overlap) of states of both [places, hidden]. before: the ids before, for
        drafts that ask."""
        log_q = self.draft.logits(own, None, before).log_softmax(-1)
        with torch.no_grad():
            log_p = self.target.logits(target).log_softmax(-1)[:, self.said]
            p = log_p.exp()
        return (p * (log_p - log_q)).sum(-1), torch.minimum(p, log_q.exp()).sum(-1)

    def both(self, places):
        """(the steps of the draft, the target's states [predicted tokens, hidden])"""
        with torch.no_grad():
            target, states = self.target.with_states(places.ids, self.draft.state_layers)
        return self.draft.steps(places, states), target.flatten(0, 1)[places.where]

    def parts(self, own, step, target):
        """(states of the draft, those of the target, ids before) of not too many rows of a step at a time."""
        before = step.before
        for begin in range(0, len(own), self.head_rows):
            part = slice(begin, begin + self.head_rows)
            yield own[part], step.of(target)[part], None if before is None else before[part]

    def learn(self, conversations):
        args, overlaps = self.args, []
        places = rows.Places(conversations, args.device)
        with arithmetic.autocast(args.device, args.dtype):
            said, target = self.both(places)
            weights = sum(step.weight for step in said)
            leaves = [step.states.detach().requires_grad_() for step in said]
            for step, leaf in zip(said, leaves):
                total = 0
                for own, wanted, before in self.parts(leaf, step, target):
                    kl, overlap = self.losses(own, wanted, before)
                    (step.weight / weights * (kl + args.overlap_weight * (1 - overlap)).sum() / len(leaf)).backward()
                    total = total + overlap.detach().sum()
                overlaps.append(total / max(1, len(leaf)))
        torch.autograd.backward([step.states for step in said if len(step.states)], [leaf.grad for leaf in leaves if len(leaf)])
        return torch.stack([torch.as_tensor(overlap, device=args.device) for overlap in overlaps])

    def steps(self):
        state, args = self.state, self.args
        while self.left():
            conversations = self.first or self.sample(state["lesson"])
            self.first = None
            for number in range(args.epochs):
                for batch in rows.batches(conversations, args.batch_tokens, args.seed + args.epochs * state["lesson"] + number):
                    if not self.left():
                        return
                    yield f"lesson {state['lesson'] + 1}", batch
            state["lesson"] += 1
            state["tokens"] += answered_tokens(conversations)

    def measure(self):
        with torch.no_grad(), arithmetic.autocast(self.args.device, self.args.dtype):
            for name, conversations in self.held_out.items():
                figures = Figures(self.draft.draft_steps)
                for group in rows.batches(conversations, self.args.batch_tokens, 0):
                    places = rows.Places(group, self.args.device)
                    said, target = self.both(places)
                    for number, step in enumerate(said):
                        for own, wanted, before in self.parts(step.states, step, target):
                            figures.add(number, *self.losses(own, wanted, before))
                    figures.tokens += len(places.where)
                self.show_held_out(figures, len(conversations), name)

    def done(self):
        return f"{self.state['lesson']} whole lessons of {self.state['tokens']} answered tokens"


def answered_tokens(conversations):
    return sum(len(c["ids"]) - c["asked"] for c in conversations)
