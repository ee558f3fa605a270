"""Batches of conversations as tensors."""
import copy
import math
import random

import numpy
import torch

from draft_distillation import pieces
from draft_distillation.pieces import KEPT

WINDOW = 64  # batches whose conversations are sorted by length, so that a batch has little padding


class Conversations:
    """Those of some folders, for training and held out (of each folder). `look` finds pieces that have come since."""

    def __init__(self, folders, context):
        self.folders, self.context, self.known = folders, context, set()
        self.vocab = self.vocab_of(folders[0])
        for folder in folders[1:]:
            if self.vocab_of(folder) != self.vocab:
                raise pieces.DataError(f"{folder}: is of a vocabulary of {self.vocab_of(folder)}, {folders[0]} of {self.vocab}")
        self.training, self.held_out = [], {folder: [] for folder in folders}
        self.too_long = dict.fromkeys(folders, 0)  # conversations whose prompt alone fills the context
        self.look()

    @staticmethod
    def vocab_of(folder):
        return pieces.description(folder)["vocab"]

    def look(self):
        there = [(folder, number) for folder in self.folders for number in pieces.numbers(folder)]
        for piece in there:
            if piece in self.known:
                continue
            self.known.add(piece)
            for conversation in pieces.read(*piece):
                cut = clipped(conversation, self.context)
                if cut is None:
                    self.too_long[piece[0]] += 1
                else:
                    (self.training if cut["number"] % pieces.HELD_OUT else self.held_out[piece[0]]).append(cut)

    def tokens(self):
        return sum(len(conversation["own_p"]) for conversation in self.training)


def clipped(conversation, context):
    """Its first ids; None if no answer is left."""
    kept = min(len(conversation["ids"]), context) - conversation["asked"]
    if kept < 1:
        return None
    return {"number": conversation["number"], "asked": conversation["asked"], "ids": conversation["ids"][:conversation["asked"] + kept],
            **{name: conversation[name][:kept] for name in ("top", "top_p", "own_p")}}


def batches(conversations, tokens, seed):
    """Lists of conversations in random order, each with at most so many tokens, padding included (or one conversation)."""
    order = list(conversations)
    source = random.Random(seed)
    source.shuffle(order)
    made = []
    mean = max(1, sum(len(c["ids"]) for c in order) // max(1, len(order)))
    window = max(1, WINDOW * tokens // mean)
    for begin in range(0, len(order), window):
        batch, longest = [], 0
        for conversation in sorted(order[begin:begin + window], key=lambda c: len(c["ids"])):
            longest = max(longest, len(conversation["ids"]))
            if batch and longest * (len(batch) + 1) > tokens:
                made.append(batch)
                batch, longest = [], len(conversation["ids"])
            batch.append(conversation)
        made.append(batch)
    source.shuffle(made)
    return made


class Places:
    """ids [conversations, time]; `where` in their flat order an id of an answer is predicted."""

    def __init__(self, conversations, device):
        length = max(len(c["ids"]) for c in conversations)
        ids, where = numpy.zeros((len(conversations), length), numpy.int64), []
        for line, c in enumerate(conversations):
            ids[line, :len(c["ids"])] = c["ids"]
            where.append(numpy.arange(c["asked"] - 1, len(c["ids"]) - 1) + line * length)
        self.ids = torch.from_numpy(ids).to(device)
        self.where = torch.from_numpy(numpy.concatenate(where)).to(device)

    def states(self, decoder):
        """[predicted tokens, hidden]"""
        return decoder.states(self.ids).flatten(0, 1)[self.where]


class Batch(Places):
    """Of each id of an answer also: the id itself (`own`), its probability under the target, and the most likely ids with theirs."""

    def __init__(self, conversations, device):
        super().__init__(conversations, device)

        def joined(name, kind):
            return torch.from_numpy(numpy.concatenate([c[name] for c in conversations]).astype(kind)).to(device)

        self.own = self.ids.view(-1)[self.where + 1]
        self.own_p, self.top, self.top_p = joined("own_p", numpy.float32), joined("top", numpy.int64), joined("top_p", numpy.float32)
        assert self.top.shape[1] == KEPT
        self.listed = (self.top == self.own[:, None]).logical_and(self.top_p > 0).any(1)

    def __getitem__(self, which):
        """What `losses` takes, of some of the predicted tokens."""
        other = copy.copy(self)
        for name in ("own", "own_p", "top", "top_p", "listed"):
            setattr(other, name, getattr(self, name)[which])
        return other

    def wanted(self):
        """[predicted tokens, KEPT + 1]: the ids whose probabilities `losses` takes."""
        return torch.cat([self.top, self.own[:, None]], 1)


def most_frequent(conversations, vocab, count):
    """The ids that the target gave the most probability in all answers, ascending."""
    mass = numpy.zeros(vocab)
    for c in conversations:
        own = c["ids"][c["asked"]:]
        listed = ((c["top"] == own[:, None]) & (c["top_p"] > 0)).any(1)
        numpy.add.at(mass, c["top"].reshape(-1), c["top_p"].reshape(-1).astype(float))
        numpy.add.at(mass, own[~listed], 1.0)  # stands for the ids that were not listed, as in `losses`
    return numpy.sort(numpy.argsort(-mass, kind="stable")[:count])


def losses(batch, log_q_top, log_q_own):
    """(forward KL divergence without the target's entropy of the tail, overlap) of each predicted token. log_q_top are the draft's
    log-probabilities of batch.top, log_q_own those of batch.own. What the target's list leaves out is known only through the ids that
    were sampled: such an id counts for all of them. As it was drawn from the target, the means of both are without bias. An id that
    the draft cannot say, -inf, is left out of the divergence, which would be infinite."""
    p = batch.top_p
    tail = ~batch.listed
    kl = torch.where((p > 0) & (log_q_top > -math.inf), p * (p.clamp(min=1e-9).log() - log_q_top), 0.0).sum(1)
    kl = kl + torch.where(tail & (log_q_own > -math.inf), batch.own_p.clamp(min=1e-9).log() - log_q_own, 0.0)
    overlap = torch.minimum(p, log_q_top.exp()).sum(1)
    overlap = overlap + torch.where(tail, (log_q_own.exp() / batch.own_p.clamp(min=1e-9)).clamp(max=1), 0.0)
    return kl, overlap
