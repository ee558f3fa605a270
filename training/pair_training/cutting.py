"""A start for a small target: a trained model without most of its layers and of its vocabulary. Its embedding keeps the rows of the
ids that a task's text needs, so each token means what it meant."""
import collections
import json
import os

import llama_folder
import numpy
from draft_distillation import llama, tensors
from partial_folder import PartialFolder

from pair_training import data, tokenizer
from pair_training.data import DataError
from pair_training.shape import shape_of

SPECIAL = 3  # ids 0, 1 and 2: unknown, BOS and EOS


class Vocabulary:
    """Of a tokenizer.json: its `content`, `ids` {token: id}, `merges` [(left, right)], `special` tokens."""

    def __init__(self, path):
        try:
            with open(path, encoding="utf8") as file:
                self.content = json.load(file)
            part = self.content["model"]
            self.ids = dict(part["vocab"])
            self.merges = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in part["merges"]]
            self.special = [token["content"] for token in self.content["added_tokens"]][:SPECIAL]
            fits = (part["type"] == "BPE" and "ByteLevel" in json.dumps(self.content.get("pre_tokenizer"))
                    and all(len(merge) == 2 for merge in self.merges) and [self.ids.get(t) for t in self.special] == list(range(SPECIAL)))
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError):
            fits = False
        if not fits:
            raise DataError(f"{path}: expected the tokenizer.json of a byte-level BPE whose first three added tokens have the ids 0, 1 and 2")
        self.names = {number: token for token, number in self.ids.items()}
        self.parts = {}
        for left, right in self.merges:
            self.parts.setdefault(left + right, (left, right))

    def kept(self, counts, size):
        """Of `size` tokens in the order of their ids: the special ones, those of one character, and the most frequent with all that
        they are merged from. Fewer or more if there are not as many."""
        kept = dict.fromkeys(self.special) | {token: None for token in self.ids if len(token) == 1}
        for token, _ in counts.most_common():
            needed, stack = {}, [token]
            while stack:
                token = stack.pop()
                if token not in kept and token not in needed:
                    needed[token] = None
                    stack += self.parts.get(token, ())
            if len(kept) + len(needed) <= size:
                kept.update(needed)
            if len(kept) == size:
                break
        return sorted(kept, key=self.ids.get)

    def only(self, kept):
        """The content of a tokenizer.json with these tokens, numbered in this order."""
        places = {token: place for place, token in enumerate(kept)}
        merges = [[left, right] for left, right in self.merges if all(token in places for token in (left, right, left + right))]
        return dict(self.content, model=dict(self.content["model"], vocab=places, merges=merges),
                    added_tokens=[token for token in self.content["added_tokens"] if token["content"] in self.special])


def cut_tokenizer(path, rows, size):
    """(the content of the new tokenizer.json, the old id of each new one)"""
    vocabulary = Vocabulary(path)
    counts, encode = collections.Counter(), tokenizer.Tokenizer(path).encode
    for text in sorted({part for prompt, completion in rows for part in (*prompt.partition("\n")[::2], completion)}):
        counts.update(vocabulary.names[number] for number in encode(text) if number in vocabulary.names)
    kept = vocabulary.kept(counts, size)
    if len(kept) < size:
        raise DataError(f"{path}: the text uses {len(kept)} of its ids, fewer than the {size} asked for")
    if len(kept) > size:
        raise DataError(f"{path}: {len(kept)} of its ids are single characters or special, more than the {size} asked for")
    return vocabulary.only(kept), numpy.array([vocabulary.ids[token] for token in kept])


def cut(args):
    """Writes a model folder: config.json, model.safetensors, tokenizer.json, tokenizer_config.json."""
    source, layers_of = args.source, args.distilled or args.source
    shape, other = shape_of(layers_of), shape_of(source)
    if differ := [name for name in ("hidden", "vocab", "theta") if shape[name] != other[name]]:
        raise DataError(f"{layers_of}: {differ[0]} is {shape[differ[0]]}, {source} has {other[differ[0]]}")
    layers = args.layers or list(range(shape["layers"]))
    if missing := [layer for layer in layers if layer >= shape["layers"]]:
        raise DataError(f"{layers_of}: has no layer {missing[0]}, only 0 to {shape['layers'] - 1}")
    content, ids = cut_tokenizer(os.path.join(source, "tokenizer.json"), data.read_rows(args.data, args.copy_case), args.vocab)
    embedding = tensors.read(source, tensors.EMBEDDING)
    if len(embedding) <= ids[-1]:
        raise DataError(f"{source}: the embedding has {len(embedding)} rows, tokenizer.json has the id {ids[-1]}")
    out = {}

    def add(name, values):
        out[name] = (values.shape, tensors.bf16_bytes(values))

    add(tensors.EMBEDDING, embedding[ids])
    add(llama.NORM, tensors.read(layers_of, llama.NORM))
    for place, layer in enumerate(layers):
        for name, part in llama.layer_names(layer).items():
            add(f"model.layers.{place}.{part}", tensors.read(layers_of, name))
    config = llama_folder.config(**dict(shape, layers=len(layers), vocab=args.vocab, context=args.context), torch_dtype="bfloat16")
    special = [token["content"] for token in content["added_tokens"]]
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": special[0], "bos_token": special[1], "eos_token": special[2],
                "add_bos_token": True, "add_eos_token": False, "clean_up_tokenization_spaces": False}
    with PartialFolder(args.out) as folder:
        llama_folder.write_folder(folder.path, config, out, "BF16")
        for name, value in ((tokenizer.JSON, content), (tokenizer.SETTINGS, settings)):
            with open(os.path.join(folder.path, name), "w", encoding="utf8") as file:
                json.dump(value, file, ensure_ascii=False, indent=None if name == tokenizer.JSON else 1)
        folder.finish()
