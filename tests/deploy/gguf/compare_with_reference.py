#!/usr/bin/env python3
"""By hand, with a real model: compares a running cluster with references that share no code with this tree. Not a ctest entry: it needs
a GGUF file and the PyPI packages gguf and tokenizers.

  compare_with_reference.py FILE.gguf DIR [--url URL] [--tokens N]

DIR is the folder that was made of FILE and that the cluster serves. Tokens: /tokenize against the tokenizers library with
DIR/tokenizer.json, for the texts of tests/tokenizer/fixtures. Greedy text: the model in float64 with the weights as the gguf package
reads them, and rotary positions over neighbouring rows as GGUF has them. Says where the two part and how close the logits were there.
"""
import argparse
import json
import pathlib
import urllib.request

import gguf
import numpy as np
import tokenizers

TEXTS = pathlib.Path(__file__).resolve().parents[2] / "tokenizer/fixtures/texts.json"
QUESTIONS = ("What is the capital of France?", "Why is the sky blue?", "Write a short poem about a coppice.", "What is 12 + 30?",
             "Explain in two sentences what a binary search does.", "Name three rivers in Europe.")


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


class Reference:
    """A Llama in float64, over a whole sequence at a time."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        field = lambda name: reader.fields[f"llama.{name}"].contents()
        self.weights = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
        self.layers, self.heads, self.kv_heads = (field(n) for n in ("block_count", "attention.head_count", "attention.head_count_kv"))
        self.epsilon, self.theta = field("attention.layer_norm_rms_epsilon"), field("rope.freq_base")
        self.size = field("embedding_length") // self.heads

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + self.epsilon) * self.weights[name]

    def rotated(self, x):
        """x: [positions, heads, size]; neighbours are a pair."""
        angle = np.arange(len(x))[:, None, None] * self.theta ** (-np.arange(0, self.size, 2) / self.size)
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * np.cos(angle) - odd * np.sin(angle), even * np.sin(angle) + odd * np.cos(angle)], -1).reshape(x.shape)

    def logits(self, tokens, begin):
        """After each of the tokens from `begin` on: [len(tokens) - begin, vocabulary]."""
        w, count = self.weights, len(tokens)
        x = w["token_embd.weight"][tokens]
        later = np.triu(np.full((count, count), -np.inf), 1)
        for layer in range(self.layers):
            at = f"blk.{layer}."
            h = self.norm(x, at + "attn_norm.weight")
            q, k, v = (((h @ w[f"{at}attn_{name}.weight"].T).reshape(count, -1, self.size)) for name in "qkv")
            k, v = (np.repeat(a, self.heads // self.kv_heads, axis=1) for a in (self.rotated(k), v))
            scores = np.einsum("ihd,jhd->hij", self.rotated(q), k) / np.sqrt(self.size) + later
            p = np.exp(scores - scores.max(2, keepdims=True))
            x = x + np.einsum("hij,jhd->ihd", p / p.sum(2, keepdims=True), v).reshape(count, -1) @ w[at + "attn_output.weight"].T
            h = self.norm(x, at + "ffn_norm.weight")
            gate = h @ w[at + "ffn_gate.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ w[at + "ffn_up.weight"].T)) @ w[at + "ffn_down.weight"].T
        return self.norm(x[begin:], "output_norm.weight") @ w.get("output.weight", w["token_embd.weight"]).T


def compare_greedy(reference, url, question, tokens):
    """The server's tokens, and [(place, logit gap)] where the reference prefers another after the same tokens."""
    chat = dict(messages=[dict(role="user", content=question)])
    prompt = post(url, "/tokenize", chat)["tokens"]
    answer = post(url, "/v1/chat/completions", dict(chat, temperature=0, max_tokens=tokens, return_token_ids=True))["choices"][0]["token_ids"]
    rows = reference.logits((prompt + answer)[:-1], len(prompt) - 1)
    return answer, [(i, float(row.max() - row[token])) for i, (token, row) in enumerate(zip(answer, rows)) if row.argmax() != token]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--tokens", type=int, default=60)
    args = parser.parse_args()
    library, texts = tokenizers.Tokenizer.from_file(str(args.dir / "tokenizer.json")), json.loads(TEXTS.read_text(encoding="utf8"))
    texts = [text for text in texts if isinstance(text, str)]
    equal = sum(library.encode(text).ids == post(args.url, "/tokenize", dict(prompt=text))["tokens"] for text in texts)
    print(f"tokens: {equal} of {len(texts)} texts as the library")
    reference, total, parted_total = Reference(args.file), 0, 0
    for question in QUESTIONS:
        answer, parted = compare_greedy(reference, args.url, question, args.tokens)
        total, parted_total = total + len(answer), parted_total + len(parted)
        print(f"{question} {len(answer)} tokens, the reference prefers another at {len(parted)}: " +
              (", ".join(f"token {i} by {gap:.4f}" for i, gap in parted) or "none"), flush=True)
    print(f"greedy: {total - parted_total} of {total} tokens as the reference")


if __name__ == "__main__":
    main()
