#!/usr/bin/env python3
"""Trains a target and a draft model that share a tokenizer, from JSON lines {"prompt": ..., "completion": ...}. Writes them
as Hugging Face Llama folders, which coppice-worker and coppice-draft can load.

  train_pair.py tokenizer --data train.jsonl --out DIR [--vocab 2048]
  train_pair.py model     --data train.jsonl --tokenizer DIR/tokenizer.model --out DIR [--hidden 192 --layers 4 ...]
  train_pair.py pair      --data train.jsonl --out DIR [--target-minutes 60 --draft-minutes 20]
                          -> DIR/NAME-target and DIR/NAME-draft (--name, default text2sql)
  train_pair.py compare   --data dev.jsonl --target DIR --draft DIR   mean overlap and greedy agreement of a pair

The models in deploy/demo have the shapes that `pair` uses by default. Needs PyTorch >= 1.13, NumPy and the Python package of
SentencePiece (Debian: python3-torch python3-numpy python3-sentencepiece). Nothing else in Coppice needs them. In the loss,
completion tokens have weight 1 and prompt tokens 0.1. Training stops when the given time is over.
"""
import argparse
import json
import math
import os
import shutil
import sys
import tempfile
import time

import llama_folder

BOS, EOS = 1, 2
PROMPT_WEIGHT = 0.1


def read_rows(path):
    rows = []
    with open(path, encoding="utf8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                rows.append((row["prompt"], row["completion"]))
            except (ValueError, KeyError, TypeError) as error:
                sys.exit(f"train_pair: {path}:{number}: expected an object with prompt and completion: {error!r}")
    if not rows:
        sys.exit(f"train_pair: {path}: no examples")
    return rows


def import_or_exit(name, package):
    try:
        return __import__(name)
    except ImportError:
        sys.exit(f"train_pair: needs the Python module {name}: install {package} (see --help)")


# ---- tokenizer

def train_tokenizer(data, vocab, out):
    """Trains a SentencePiece BPE model with byte fallback. A line feed is a separate token. Digits are split."""
    sentencepiece = import_or_exit("sentencepiece", "python3-sentencepiece")
    os.makedirs(out, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf8", suffix=".txt") as corpus:
        for prompt, completion in read_rows(data):
            corpus.writelines(part + "\n" for part in (prompt + completion).split("\n"))
        corpus.flush()
        sentencepiece.SentencePieceTrainer.train(
            input=corpus.name, model_prefix=os.path.join(out, "tokenizer"), vocab_size=vocab, model_type="bpe",
            byte_fallback=True, character_coverage=0.9995, normalization_rule_name="identity",
            user_defined_symbols=["\n"], add_dummy_prefix=False, remove_extra_whitespaces=False, split_digits=True,
            unk_id=0, bos_id=BOS, eos_id=EOS, pad_id=-1, max_sentence_length=20000,
            minloglevel=1)
    return os.path.join(out, "tokenizer.model")


def encode_rows(tokenizer, data):
    """[(prompt ids with BOS, completion ids with EOS)]"""
    return [([BOS] + tokenizer.encode(prompt), tokenizer.encode(completion) + [EOS])
            for prompt, completion in read_rows(data)]


# ---- model: the decoder of llama_folder in PyTorch, parameters under their file names

class Llama:
    """Parameters by file name, and the forward pass over [batch, time] ids. RMSNorm, RoPE (half split), SwiGLU."""

    def __init__(self, torch, shape, device):
        self.torch, self.shape, self.device = torch, shape, device
        self.parameters = {name: torch.ones(dims, device=device) for name, dims in
                           llama_folder.tensor_shapes(**{k: v for k, v in shape.items() if k != "context"}).items()}

    def initialise(self, seed):
        torch = self.torch
        torch.manual_seed(seed)
        for name, value in self.parameters.items():
            if value.dim() < 2:
                continue
            std = 0.02 if "embed_tokens" in name else 1 / math.sqrt(value.shape[1])
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                std /= math.sqrt(2 * self.shape["layers"])
            value.normal_(0, std)
        for value in self.parameters.values():
            value.requires_grad_()

    def load(self, folder):
        import numpy
        with open(os.path.join(folder, "model.safetensors"), "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            body = file.read()
        for name, value in self.parameters.items():
            begin, end = header[name]["data_offsets"]
            data = numpy.frombuffer(body[begin:end], "<f4").reshape(header[name]["shape"])
            value.copy_(self.torch.tensor(data))

    def norm(self, x, name):
        return x * self.torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.parameters[name]

    def logits(self, ids):
        """[batch, time] ids -> [batch, time, vocab]"""
        torch, p, heads = self.torch, self.parameters, self.shape["heads"]
        batch, length = ids.shape
        hidden = self.shape["hidden"]
        dim = hidden // heads
        angle = (torch.arange(length, device=self.device)[:, None] /
                 10000 ** (torch.arange(0, dim, 2, device=self.device) / dim))
        cos, sin = torch.cat([angle.cos()] * 2, 1), torch.cat([angle.sin()] * 2, 1)
        mask = torch.full((length, length), -1e9, device=self.device).triu(1)

        def rotate(x):
            low, high = x.chunk(2, -1)
            return x * cos + torch.cat([-high, low], -1) * sin

        x = p["model.embed_tokens.weight"][ids]
        for layer in range(self.shape["layers"]):
            prefix = f"model.layers.{layer}."

            def linear(y, name, prefix=prefix):
                return y @ p[prefix + name + ".weight"].T

            def split(y):
                return y.view(batch, length, heads, dim).transpose(1, 2)

            y = self.norm(x, prefix + "input_layernorm.weight")
            query, key = (rotate(split(linear(y, f"self_attn.{n}_proj"))) for n in "qk")
            value = split(linear(y, "self_attn.v_proj"))
            attention = (query @ key.transpose(-1, -2) / math.sqrt(dim) + mask).softmax(-1)
            mixed = (attention @ value).transpose(1, 2).reshape(batch, length, hidden)
            x = x + linear(mixed, "self_attn.o_proj")
            y = self.norm(x, prefix + "post_attention_layernorm.weight")
            gate = torch.nn.functional.silu(linear(y, "mlp.gate_proj"))
            x = x + linear(gate * linear(y, "mlp.up_proj"), "mlp.down_proj")
        return self.norm(x, "model.norm.weight") @ p["model.embed_tokens.weight"].T

    def save(self, folder, tokenizer):
        tensors = {name: (tuple(value.shape), value.detach().cpu().float().contiguous().numpy().astype("<f4").tobytes())
                   for name, value in self.parameters.items()}
        llama_folder.write_folder(folder, llama_folder.config(**self.shape), tensors)
        if os.path.abspath(tokenizer) != os.path.abspath(os.path.join(folder, "tokenizer.model")):
            shutil.copy(tokenizer, os.path.join(folder, "tokenizer.model"))


# ---- training

def batches(random, lengths, size):
    """Yields batches of example numbers without end, shuffled. The examples of a batch have similar lengths."""
    while True:
        for part in _parts(random.sample(range(len(lengths)), len(lengths)), 4096):
            part.sort(key=lengths.__getitem__)
            groups = list(_parts(part, size))
            random.shuffle(groups)
            yield from groups


def _parts(items, size):
    for begin in range(0, len(items), size):
        yield items[begin:begin + size]


def collate(torch, examples, context, device):
    """(ids [batch, time], weight of each predicted token [batch, time - 1])"""
    length = min(context, max(len(p) + len(c) for p, c in examples))
    ids = torch.zeros(len(examples), length, dtype=torch.long)
    weight = torch.zeros(len(examples), length)
    for row, (prompt, completion) in enumerate(examples):
        tokens = (prompt + completion)[:length]
        ids[row, :len(tokens)] = torch.tensor(tokens)
        weight[row, :len(tokens)] = PROMPT_WEIGHT
        weight[row, min(len(prompt), length):len(tokens)] = 1
    return ids.to(device), weight[:, 1:].to(device)


def train_model(args, tokenizer_file, out, shape, minutes):
    """Trains with AdamW and a cosine learning rate for the given minutes. Writes the folder at the end."""
    import random
    torch = import_or_exit("torch", "python3-torch")
    sentencepiece = import_or_exit("sentencepiece", "python3-sentencepiece")
    if args.threads:
        torch.set_num_threads(args.threads)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=tokenizer_file)
    data = encode_rows(tokenizer, args.data)
    shape = dict(shape, vocab=tokenizer.get_piece_size())
    model = Llama(torch, shape, args.device)
    model.initialise(args.seed)
    parameters = list(model.parameters.values())
    print(f"{out}: {sum(p.numel() for p in parameters)} parameters, {len(data)} examples, {minutes:g} minutes", flush=True)
    optimizer = torch.optim.AdamW(parameters, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.05)
    source = batches(random.Random(args.seed), [len(p) + len(c) for p, c in data], args.batch)
    begin, step, loss_sum = time.monotonic(), 0, 0.0
    while (elapsed := (time.monotonic() - begin) / 60) < minutes:
        ids, weight = collate(torch, [data[i] for i in next(source)], args.context, args.device)
        rate = args.lr * min(1, (step + 1) / 100) * (0.05 + 0.475 * (1 + math.cos(math.pi * elapsed / minutes)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        logits = model.logits(ids[:, :-1])
        nll = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        optimizer.zero_grad(set_to_none=True)
        ((nll * weight).sum() / weight.sum()).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        step += 1
        completion = (weight == 1).float()
        loss_sum += float((nll.detach() * completion).sum() / completion.sum().clamp(min=1))
        if step % 100 == 0:
            print(f"{out}: step {step}, {elapsed:.1f} of {minutes:g} min, completion {loss_sum / 100:.4f} nats a token, "
                  f"epoch {step * args.batch / len(data):.2f}", flush=True)
            loss_sum = 0.0
    model.save(out, tokenizer_file)
    print(f"{out}: written after {step} steps", flush=True)


def compare(args):
    """Over the reference completions, prints the mean of sum min(p, q) at temperature 1, and how often the greedy tokens agree."""
    torch = import_or_exit("torch", "python3-torch")
    sentencepiece = import_or_exit("sentencepiece", "python3-sentencepiece")
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=os.path.join(args.target, "tokenizer.model"))
    models = []
    for folder in (args.target, args.draft):
        with open(os.path.join(folder, "config.json"), encoding="utf8") as file:
            c = json.load(file)
        models.append(Llama(torch, dict(hidden=c["hidden_size"], layers=c["num_hidden_layers"],
                                        heads=c["num_attention_heads"], kv_heads=c["num_key_value_heads"],
                                        ffn=c["intermediate_size"], vocab=c["vocab_size"],
                                        context=c["max_position_embeddings"]), args.device))
        models[-1].load(folder)
    overlap = agree = count = 0
    with torch.no_grad():
        for prompt, completion in encode_rows(tokenizer, args.data)[:args.examples]:
            ids = torch.tensor([prompt + completion], device=args.device)
            p, q = (m.logits(ids[:, :-1])[0, len(prompt) - 1:].softmax(-1) for m in models)
            overlap += float(torch.minimum(p, q).sum())
            agree += int((p.argmax(-1) == q.argmax(-1)).sum())
            count += len(completion)
    print(f"{count} tokens: overlap {overlap / count:.3f}, greedy agreement {agree / count:.3f}")


def add_training_options(parser):
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="cpu")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    tokenizer, model, pair, comparison = (commands.add_parser(n) for n in ("tokenizer", "model", "pair", "compare"))
    for command in (tokenizer, model, pair, comparison):
        command.add_argument("--data", required=True)
    for command in (tokenizer, model, pair):
        command.add_argument("--out", required=True)
    for command in (tokenizer, pair):
        command.add_argument("--vocab", type=int, default=2048)
    for name, default in dict(hidden=192, layers=4, heads=6, ffn=512).items():
        model.add_argument("--" + name, type=int, default=default)
    model.add_argument("--tokenizer", required=True)
    model.add_argument("--minutes", type=float, default=60)
    pair.add_argument("--name", default="text2sql")
    pair.add_argument("--target-minutes", type=float, default=60)
    pair.add_argument("--draft-minutes", type=float, default=20)
    for command in (model, pair):
        add_training_options(command)
    comparison.add_argument("--target", required=True)
    comparison.add_argument("--draft", required=True)
    comparison.add_argument("--examples", type=int, default=40)
    comparison.add_argument("--device", default="cpu")
    return parser.parse_args()


def main():
    args = parse_arguments()
    if args.command == "tokenizer":
        print(train_tokenizer(args.data, args.vocab, args.out))
    elif args.command == "compare":
        compare(args)
    elif args.command == "model":
        shape = dict(hidden=args.hidden, layers=args.layers, heads=args.heads, kv_heads=args.heads, ffn=args.ffn,
                     context=args.context)
        train_model(args, args.tokenizer, args.out, shape, args.minutes)
    else:
        target, draft = (os.path.join(args.out, f"{args.name}-{role}") for role in ("target", "draft"))
        tokenizer = train_tokenizer(args.data, args.vocab, target)
        os.remove(os.path.join(target, "tokenizer.vocab"))
        train_model(args, tokenizer, target, dict(hidden=192, layers=4, heads=6, kv_heads=6, ffn=512,
                                                  context=args.context), args.target_minutes)
        train_model(args, tokenizer, draft, dict(hidden=128, layers=2, heads=4, kv_heads=4, ffn=352,
                                                 context=args.context), args.draft_minutes)


if __name__ == "__main__":
    main()
