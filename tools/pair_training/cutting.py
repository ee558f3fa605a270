"""A start for a small target: a trained model without most of its layers and of its vocabulary. Its embedding keeps the rows of the
ids that a task's text needs, so each token means what it meant."""
import collections
import json
import os

import llama_folder
import numpy
from draft_distillation import llama, tensors

from pair_training import data, tokenizer

SPECIAL = 3  # ids 0, 1 and 2: unknown, BOS and EOS


def _refuse(path, reason):
    raise data.DataError(f"{path}: {reason}")


def read_vocabulary(path):
    """(content of tokenizer.json, {token: id}, {token: its two parts})"""
    try:
        with open(path, encoding="utf8") as file:
            content = json.load(file)
        vocab, merges = content["model"]["vocab"], content["model"]["merges"]
        pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in merges]
    except OSError as error:
        _refuse(path, error.strerror)
    except (ValueError, KeyError, TypeError) as error:
        _refuse(path, f"expected the tokenizer.json of a BPE: {error}")
    special = [token["content"] for token in content.get("added_tokens", [])][:SPECIAL]
    if content["model"].get("type") != "BPE" or [vocab.get(token) for token in special] != list(range(SPECIAL)):
        _refuse(path, "expected a BPE whose first three added tokens have the ids 0, 1 and 2")
    parts = {}
    for left, right in pairs:
        parts.setdefault(left + right, (left, right))
    return content, vocab, parts


def kept_tokens(vocab, parts, counts, size, special):
    """The `size` tokens that are left, in the order of their ids: the special ones, those of one character, and the most frequent
    with all that they are merged from."""
    kept = dict.fromkeys(special) | {token: None for token in vocab if len(token) == 1}
    for token, _ in counts.most_common():
        needed, stack = {}, [token]
        while stack:
            token = stack.pop()
            if token not in kept and token not in needed:
                needed[token] = None
                stack += parts.get(token, ())
        if len(kept) + len(needed) <= size:
            kept.update(needed)
        if len(kept) == size:
            break
    return sorted(kept, key=vocab.get)


def cut_tokenizer(path, rows, size):
    """(the content of the new tokenizer.json, the old id of each new one)"""
    content, vocab, parts = read_vocabulary(path)
    names = {number: token for token, number in vocab.items()}
    special = [names[number] for number in range(SPECIAL)]
    counts, encode = collections.Counter(), tokenizer.Tokenizer(path).encode
    for text in sorted({part for prompt, completion in rows for part in (*prompt.partition("\n")[::2], completion)}):
        counts.update(names[number] for number in encode(text))
    kept = kept_tokens(vocab, parts, counts, size, special)
    if len(kept) < size:
        _refuse(path, f"the text uses {len(kept)} of its ids, fewer than the {size} asked for")
    if len(kept) > size:
        _refuse(path, f"{len(kept)} of its ids are single characters or special, more than the {size} asked for")
    places = {token: place for place, token in enumerate(kept)}
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] in special]
    content["model"]["merges"] = [[left, right] for left, right in
                                  (tuple(m.split(" ")) if isinstance(m, str) else m for m in content["model"]["merges"])
                                  if left in places and right in places and left + right in places]
    content["model"]["vocab"] = places
    return content, numpy.array([vocab[token] for token in kept])


def cut(args):
    """Writes a model folder: config.json, model.safetensors, tokenizer.json, tokenizer_config.json."""
    source, layers_of = args.source, args.distilled or args.source
    configs = []
    for folder in (source, layers_of):
        with open(os.path.join(folder, "config.json"), encoding="utf8") as file:
            configs.append(json.load(file))
    config = configs[1]
    llama.shape_of(config, layers_of)  # refuses what is no plain Llama
    layers = args.layers or list(range(config["num_hidden_layers"]))
    if missing := [layer for layer in layers if layer >= config["num_hidden_layers"]]:
        _refuse(layers_of, f"has no layer {missing[0]}, only 0 to {config['num_hidden_layers'] - 1}")
    rows = data.read_rows(args.data, args.copy_case)
    content, ids = cut_tokenizer(os.path.join(source, "tokenizer.json"), rows, args.vocab)
    out = {}

    def add(name, values):
        out[name] = (values.shape, tensors.bf16_bytes(values))

    add(tensors.EMBEDDING, tensors.read(source, tensors.EMBEDDING)[ids])
    add(llama.NORM, tensors.read(layers_of, llama.NORM))
    for place, layer in enumerate(layers):
        for name, part in llama.layer_names(layer).items():
            add(f"model.layers.{place}.{part}", tensors.read(layers_of, name))
    heads = config["num_attention_heads"]
    llama_folder.write_folder(args.out, llama_folder.config(
        config["hidden_size"], len(layers), heads, config.get("num_key_value_heads", heads), config["intermediate_size"], args.vocab,
        args.context, config.get("rope_theta", 10000.0), "bfloat16"), out, "BF16")
    special = [token["content"] for token in content["added_tokens"]]
    for name, value in (("tokenizer.json", content), ("tokenizer_config.json", {
            "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": special[0], "bos_token": special[1], "eos_token": special[2],
            "add_bos_token": True, "add_eos_token": False, "clean_up_tokenization_spaces": False})):
        with open(os.path.join(args.out, name), "w", encoding="utf8") as file:
            json.dump(value, file, ensure_ascii=False, indent=None if name == "tokenizer.json" else 1)
