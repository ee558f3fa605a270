#!/usr/bin/env python3
"""Makes a synthetic generative recommender: a model whose tokens are codes of items, a draft model, and a catalogue. Needs only NumPy.

  lab/bench/recommendation/make_recommender.py --out DIR               # half a minute; 110 MB
    -> DIR/target, DIR/draft      Hugging Face folders of Llama architecture with a tokenizer, in bf16
       DIR/items.jsonl            the catalogue: {"id", "name", "tokens"} in each line, in ascending order of tokens
       DIR/cluster.toml           for deploy/cluster.sh, once coppice-catalogue has compiled the items to DIR/items.cat

The target (23 million parameters with 4 times 8,192 codes) is a random network of lab/make_pair.py: sharp attention, and a prediction that
depends on the history. Beside it, dimensions that no layer writes carry the level of the last code and its vector u from the embedding to
the head (codes.py), so a code of the next level follows, and combinations of the catalogue are likely. Like a trained recommender it does
not know the catalogue: without a trie some of its best sequences are no item. The draft has one small layer and the same head but for the
part that depends on the history. The same arguments give the same files.
"""
import argparse
import json
import math
import pathlib
import sys

import numpy

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT / "lab"), str(ROOT / "training")]
import codes as coded  # noqa: E402
from codes import FIRST_CODE, GAINS, LEVELS, TRAITS, Codes  # noqa: E402
from llama_folder import config, write_folder  # noqa: E402
from make_pair import Net, bf16_bits  # noqa: E402

CARRIED = len(LEVELS) + TRAITS        # the last dimensions of the residual stream: level and u of the last code
LEVEL_SIZE, LEVEL_LOGIT = 4.0, 24.0   # of the level in the residual stream; what a code of the wrong level loses
HISTORY = (3.0, 0.6, 0.6, 0.6)        # standard deviation of the logits that depend on the history, for each level
SUPPRESSED = -40.0                    # logit of bytes, special and unused tokens
CONTEXT = 4096


def byte_texts():
    """How byte-level BPE writes the 256 bytes."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(others)) for byte in range(256)]


def write_tokenizer(folder, codes):
    """Bytes without merges; a code is an added token, also within a text."""
    special = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i, text in enumerate(coded.SPECIAL)]
    added = [dict(special[0], id=coded.token(level, code, codes), content=coded.text(level, code), special=False)
             for level in range(len(LEVELS)) for code in range(codes)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special + added, "normalizer": None,
                 "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                           "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "merges": [],
                           "vocab": {text: len(coded.SPECIAL) + byte for byte, text in enumerate(byte_texts())}}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
                "add_bos_token": False, "add_eos_token": False, "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf8")


def popularity(codes, vocab):
    """[vocab] f64: the part of a logit that does not depend on the text."""
    found = numpy.full(vocab, SUPPRESSED)
    found[FIRST_CODE:FIRST_CODE + len(LEVELS) * codes.codes] = codes.popularity.ravel()
    return found


def carried(codes, vocab, scale):
    """(embedding, head), each [vocab, CARRIED]: level and u of a code, and what the head reads of them. scale: by which the final norm divides
    them. The last level is followed by the first one."""
    embedding, head = numpy.zeros((vocab, CARRIED)), numpy.zeros((vocab, CARRIED))
    for level, gain in enumerate(GAINS):
        rows = slice(FIRST_CODE + level * codes.codes, FIRST_CODE + (level + 1) * codes.codes)
        embedding[rows, level] = LEVEL_SIZE
        embedding[rows, len(LEVELS):] = codes.before[level]
        previous = (level - 1) % len(LEVELS)
        head[rows, :len(LEVELS)] = -LEVEL_LOGIT / LEVEL_SIZE * scale
        head[rows, previous] = 0
        head[rows, len(LEVELS):] = codes.after[level] * (gain / math.sqrt(TRAITS) * scale)
    return embedding, head


def target_tensors(codes, vocab, hidden, layers, heads, ffn, seed):
    """{name: f32 array}"""
    net = Net(layers, hidden, heads, heads // 2, ffn, vocab, layers - 1, seed, "f32", s=1.0, eps=0.05, theta=10000.0, maxpos=CONTEXT)
    own, first = slice(hidden - CARRIED, hidden), net.IN.stop
    if own.start <= first:
        raise ValueError(f"hidden size {hidden}: expected more than {2 * CARRIED + 2}")
    tensors = {name: net.full(name, shape).copy() for name, shape in net.names()}
    for name, values in tensors.items():  # layers neither write nor read the last dimensions
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            values[own] = 0
        elif ".layers." in name and values.ndim == 2:
            values[:, own] = 0
    gamma, size = tensors["model.norm.weight"], math.sqrt(net.stat(net.K, False)[2] + (LEVEL_SIZE ** 2 + TRAITS) / hidden)
    embedding, head = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    history = numpy.zeros(vocab)
    history[FIRST_CODE:FIRST_CODE + len(LEVELS) * codes.codes] = numpy.repeat(HISTORY, codes.codes)
    head *= history[:, None]
    embedding[:, own], head[:, own] = carried(codes, vocab, size)
    head[:, 0] = popularity(codes, vocab) * size / net.c0
    head[:, 0] /= gamma[0]
    head[:, own] /= gamma[own]
    return tensors


def draft_tensors(codes, vocab, hidden, ffn, seed):
    """{name: f32 array} of one layer of one head. It writes between the first dimension and those that are carried."""
    draw = numpy.random.Generator(numpy.random.SFC64([seed, 3]))
    own, inner = slice(hidden - CARRIED, hidden), slice(1, hidden - CARRIED)
    constant, layer = math.sqrt(hidden / 2), "model.layers.0."
    random = lambda rows, columns: draw.standard_normal((rows, columns)) / math.sqrt(columns)  # noqa: E731
    size = math.sqrt((constant ** 2 + LEVEL_SIZE ** 2 + TRAITS + 2 * (inner.stop - 1)) / hidden)
    embedding, head = numpy.zeros((vocab, hidden)), numpy.zeros((vocab, hidden))
    embedding[:, 0] = constant
    embedding[:, inner] = draw.standard_normal((vocab, inner.stop - 1))
    embedding[:, own], head[:, own] = carried(codes, vocab, size)
    head[:, 0] = popularity(codes, vocab) * size / constant
    head[:, inner] = 0.05 * draw.standard_normal((vocab, inner.stop - 1))
    tensors = {"model.embed_tokens.weight": embedding, "model.norm.weight": numpy.ones(hidden), "lm_head.weight": head}
    tensors |= {f"{layer}{name}_layernorm.weight": numpy.ones(hidden) for name in ("input", "post_attention")}
    tensors |= {f"{layer}self_attn.{name}_proj.weight": random(hidden, hidden) for name in "qkvo"}
    tensors |= {f"{layer}mlp.{name}_proj.weight": random(ffn, hidden) for name in ("gate", "up")}
    tensors[layer + "mlp.down_proj.weight"] = random(hidden, ffn)
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        tensors[f"{layer}{name}.weight"][[0, *range(own.start, own.stop)]] = 0
    return tensors


def write_model(folder, tensors, settings, codes):
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(folder, settings, {name: (values.shape, bf16_bits(values).tobytes()) for name, values in tensors.items()}, "BF16")
    write_tokenizer(folder, codes)
    return sum(values.size for values in tensors.values())


def write_items(path, items, codes):
    with open(path, "w", encoding="utf8") as file:
        for number, item in enumerate(items.tolist(), 1):
            file.write(json.dumps({"id": f"B{number:07d}", "name": coded.name(item, codes), "tokens": item}) + "\n")


def write_cluster(folder):
    folder = folder.resolve()
    text = [f"target = {json.dumps(str(folder / 'target'))}", f"draft = {json.dumps(str(folder / 'draft'))}", "drafts = 1",
            "[catalogues]", f"items = {json.dumps(str(folder / 'items.cat'))}"]
    (folder / "cluster.toml").write_text("\n".join(text) + "\n", encoding="utf8")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--items", type=int, default=1_000_000, help="of the catalogue (%(default)s)")
    parser.add_argument("--codes", type=int, default=8192, help="of each of the four levels (%(default)s)")
    parser.add_argument("--hidden", type=int, default=256, help="size of the target (%(default)s)")
    parser.add_argument("--layers", type=int, default=8, help="of the target (%(default)s)")
    parser.add_argument("--heads", type=int, default=4, help="of the target, an even number (%(default)s)")
    parser.add_argument("--ffn", type=int, default=704, help="inner size of the target's MLPs (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(%(default)s)")
    chosen = parser.parse_args()
    if chosen.hidden <= 2 * CARRIED + 2 or chosen.heads % 2 or chosen.hidden % chosen.heads or chosen.layers < 2:
        parser.error(f"expected --hidden above {2 * CARRIED + 2} and a multiple of --heads, which is even, and two --layers or more")
    if not 1 <= chosen.items <= chosen.codes ** len(LEVELS):
        parser.error(f"--items: {chosen.codes} codes a level have no {chosen.items}")
    return chosen


def main():
    chosen = parse_arguments()
    codes, vocab = Codes(chosen.codes, chosen.seed), coded.vocab_size(chosen.codes)
    settings = dict(config(chosen.hidden, chosen.layers, chosen.heads, chosen.heads // 2, chosen.ffn, vocab, CONTEXT, torch_dtype="bfloat16"),
                    tie_word_embeddings=False)
    tensors = target_tensors(codes, vocab, chosen.hidden, chosen.layers, chosen.heads, chosen.ffn, chosen.seed)
    print(f"target: {write_model(chosen.out / 'target', tensors, settings, chosen.codes):,} parameters", flush=True)
    small = dict(config(64, 1, 1, 1, 128, vocab, CONTEXT, torch_dtype="bfloat16"), tie_word_embeddings=False)
    print(f"draft: {write_model(chosen.out / 'draft', draft_tensors(codes, vocab, 64, 128, chosen.seed), small, chosen.codes):,} parameters", flush=True)
    items = codes.items(chosen.items)
    write_items(chosen.out / "items.jsonl", items, chosen.codes)
    write_cluster(chosen.out)
    print(f"items: {len(items):,}")


if __name__ == "__main__":
    main()
