"""Conversations with a target in PyTorch, many at a time: what `sampling` asks of a server, without the probabilities, which a target at hand says again
whenever they are needed."""
import math

import numpy
import torch

import arithmetic
from draft_distillation import openings
from draft_distillation.decoder import Cache
from draft_distillation.sampling import place_of

FIRST_TOKENS = 1 << 16  # of prompts that are read at a time
LOOK = 8                # steps after which it is asked whether all lines have ended


class Target:
    """Writes what follows prompts. `ends`: ids that end a text. `room`: positions of keys and values that fit in memory."""

    def __init__(self, decoder, ends, room, args):
        self.decoder, self.ends, self.room, self.args = decoder, set(ends), room, args

    def write(self, prompts, most, temperature, source, least=0):
        """Ids for each prompt: at least `least` and at most `most`, the one that ends the text included."""
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        written, begin = [None] * len(prompts), 0
        while begin < len(order):
            end = begin + 1
            while end < len(order) and (end + 1 - begin) * (len(prompts[order[end]]) + most) <= self.room:
                end += 1
            group = order[begin:end]
            for place, ids in zip(group, self.write_together([prompts[i] for i in group], most, temperature, source, least)):
                written[place] = ids
            begin = end
        return written

    @torch.no_grad()
    def write_together(self, prompts, most, temperature, source, least):
        device, longest = self.args.device, max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
        padded = torch.tensor([longest - len(prompt) for prompt in prompts], device=device)
        ends = torch.tensor(sorted(self.ends), dtype=torch.long, device=device)
        with arithmetic.autocast(device, self.args.dtype):
            cache, states = Cache(self.decoder, padded, longest + most), []
            lines = max(1, FIRST_TOKENS // longest)
            for begin in range(0, len(prompts), lines):
                end = min(begin + lines, len(prompts))
                states.append(self.decoder.states(ids[begin:end], cache.part(begin, end))[:, -1])
            cache.length, state = longest, torch.cat(states)
            tokens, ended = [], torch.zeros(len(prompts), dtype=torch.bool, device=device)
            for step in range(most):
                logits = self.decoder.logits(state) / temperature
                if step < least:
                    logits[:, ends] = -math.inf
                tokens.append(torch.multinomial(logits.softmax(-1), 1, generator=source))
                ended |= torch.isin(tokens[-1][:, 0], ends)
                if step + 1 == most or (step % LOOK == LOOK - 1 and bool(ended.all())):
                    break
                state = self.decoder.states(tokens[-1], cache)[:, -1]
        return [self.until_end(line) for line in torch.cat(tokens, 1).tolist()]

    def until_end(self, ids):
        return ids[:next((i for i, token in enumerate(ids) if token in self.ends), len(ids)) + 1]

    def without_end(self, *asked, **options):
        return [[token for token in ids if token not in self.ends] for ids in self.write(*asked, **options)]


class Asker:
    """Makes conversations with numbers. Their prompts are those of a file, questions about texts of a file, or invented by the target."""

    def __init__(self, target, chat, args, prompts=(), texts=()):
        self.target, self.chat, self.args, self.given, self.texts = target, chat, args, prompts, texts
        self.left_out = 0  # conversations whose prompt leaves no room for an answer

    def conversations(self, numbers, source):
        """[{number, ids, asked}], as in `pieces`, but without probabilities. source: the generator of what is drawn."""
        numbers, asked = list(numbers), self.prompts(list(numbers), source)
        room = self.args.context - self.args.answer_tokens
        kept = [place for place, prompt in enumerate(asked) if len(prompt) <= room]
        self.left_out += len(asked) - len(kept)
        answers = self.target.write([asked[place] for place in kept], self.args.answer_tokens, 1.0, source)
        return [{"number": numbers[place], "ids": numpy.array(asked[place] + answer), "asked": len(asked[place])}
                for place, answer in zip(kept, answers)]

    def prompts(self, numbers, source):
        if self.given:
            return [self.chat.asked(self.given[place_of(number, len(self.given))]) for number in numbers]
        args, after = self.args, self.chat.after
        drawn = [openings.of(args.seed, number, about_texts=bool(self.texts)) for number in numbers]
        texts = [""] * len(drawn)
        if self.texts:
            texts = [self.texts[place_of(number, len(self.texts))] for number in numbers]
        elif about := [place for place, opening in enumerate(drawn) if opening.has_text]:
            questions = self.target.without_end([self.chat.before] * len(about), args.question_tokens, args.question_temperature, source, least=2)
            answers = self.target.write([self.chat.before + question + after for question in questions], args.answer_tokens, args.question_temperature, source)
            for place, answer in zip(about, answers):
                texts[place] = self.chat.decode(answer).strip()
        asked = [self.chat.message(opening.filled(text)) for opening, text in zip(drawn, texts)]
        room = args.context - args.answer_tokens - args.question_tokens
        going_on = [place for place, opening in enumerate(drawn) if opening.goes_on and len(asked[place]) <= room]
        more = self.target.without_end([asked[place] for place in going_on], args.question_tokens, args.question_temperature, source, least=1) if going_on else []
        for place, ids in zip(going_on, more):
            asked[place] = asked[place] + ids
        return [ids + after for ids in asked]
