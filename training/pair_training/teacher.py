"""What a target says of the completions of the rows: for each of their tokens, the most likely ids and their probabilities."""
import os
import time

import torch

import arithmetic
from pair_training import data, model
from pair_training.batch import Batch

KEPT = 16  # ids of a token; the rest of the probability counts as one more


def distributions(folder, groups, tokens, args, path, crew, say):
    """(ids [tokens, KEPT], probabilities [tokens, KEPT]), from the file at `path` if it is there, else written to it. Each process of
    the crew asks the target for its part."""
    file = os.stat(os.path.join(folder, "model.safetensors"))
    of = [tokens, file.st_size, file.st_mtime_ns]
    if os.path.exists(path):
        saved = torch.load(path, weights_only=True)
        if saved["of"] == of:
            return saved["ids"], saved["probabilities"]
    target = model.load(folder, args.device)
    ids, probabilities = torch.zeros(tokens, KEPT, dtype=torch.int32), torch.zeros(tokens, KEPT, dtype=torch.float16)
    done, begin = 0, time.monotonic()
    shown = begin
    with torch.no_grad(), arithmetic.autocast(args.device, args.dtype):
        for packs in data.epoch_batches(groups, 4 * args.batch_tokens, args.pack_tokens, 0)[crew.rank::crew.size]:
            batch = Batch(packs, args.device, 0)
            most = batch.logits(target).softmax(-1).topk(KEPT)
            ids[batch.tokens], probabilities[batch.tokens] = most.indices.cpu().int(), most.values.cpu().half()
            done += len(batch.tokens) * crew.size
            if crew.rank == 0 and time.monotonic() - shown > 30:
                shown = time.monotonic()
                say(f"{folder}: its distributions of {done} of {tokens} tokens, "
                    f"{(shown - begin) * (tokens - done) / done / 60:.1f} minutes left")
    crew.sum([ids])
    crew.sum([probabilities])
    if crew.rank == 0:
        torch.save({"of": of, "ids": ids, "probabilities": probabilities}, path + ".new")
        os.replace(path + ".new", path)
    return ids, probabilities


def losses(logits, ids, probabilities):
    """(forward KL divergence, 1 - overlap) of each row of the logits, the rest of the vocabulary taken as one word."""
    p = probabilities.float()
    log_q = logits.log_softmax(-1).gather(1, ids.long())
    q = log_q.exp()
    rest_p, rest_q = (1 - p.sum(-1)).clamp(min=0), (1 - q.sum(-1)).clamp(min=1e-6)
    kl = (p * (p.clamp(min=1e-9).log() - log_q)).sum(-1) + rest_p * (rest_p.clamp(min=1e-9).log() - rest_q.log())
    overlap = torch.minimum(p, q).sum(-1) + torch.minimum(rest_p, rest_q)
    return kl, 1 - overlap
