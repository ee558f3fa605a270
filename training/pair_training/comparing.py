"""How near a draft is to its target."""
import torch

from pair_training import data, model, tokenizer
from pair_training.batch import Batch


def compare(args):
    """Over the reference completions: the mean of sum min(p, q) at temperature 1, and how often the most likely tokens agree."""
    encode = tokenizer.Tokenizer(tokenizer.file_in(args.target)).encode
    rows = data.read_rows(args.data, args.copy_case)
    rows = rows[::max(1, len(rows) // args.examples)][:args.examples]
    models = [model.load(folder, args.device) for folder in (args.target, args.draft)]
    groups, count, _ = data.encode_rows(encode, rows, min(m.shape["context"] for m in models))
    if models[0].shape["vocab"] != models[1].shape["vocab"]:
        raise data.DataError(f"{args.draft}: vocabulary of {models[1].shape['vocab']}, {args.target} has {models[0].shape['vocab']}")
    overlap = agree = 0
    with torch.no_grad():
        for packs in data.epoch_batches(groups, 2048, 256, 0):
            batch = Batch(packs, args.device, 0)
            p, q = (batch.logits(m).softmax(-1) for m in models)
            overlap += float(torch.minimum(p, q).sum())
            agree += int((p.argmax(-1) == q.argmax(-1)).sum())
    print(f"{count} tokens: overlap {overlap / count:.3f}, greedy agreement {agree / count:.3f}")
