"""The tensors of model folders. A distilled draft is kept as trained.safetensors, which has only what was trained, its matrices as
8-bit integers with a scale for each row: half of bf16. The embedding and the head are the target's, and come from its folder when the
draft is put together (training/draft_folder.py). Needs NumPy."""
import glob
import json
import os
import shutil

import llama_folder
import numpy

from draft_distillation.llama import config_of
from draft_distillation.pieces import DataError

TRAINED = "trained.safetensors"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json",
              "tokenizer_config.json")
SCALES = "_scale"  # behind the name of a matrix of integers: F32, one for each row
HEAD_IDS = "d2t"  # of a draft that has only some rows of the head: row i is id i + d2t[i]; config.json has their number


def find(folder, name):
    """(dtype, shape, bytes) of a tensor of a folder."""
    paths = sorted(glob.glob(os.path.join(folder, "*.safetensors")))
    for path in paths:
        with open(path, "rb") as file:
            try:
                size = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(min(size, 1 << 26)))
            except ValueError as error:
                raise DataError(f"{path}: is no safetensors file") from error
            if name in header:
                begin, end = header[name]["data_offsets"]
                file.seek(8 + size + begin)
                data = file.read(end - begin)
                if len(data) != end - begin:
                    raise DataError(f"{path}: ends within {name}")
                return header[name]["dtype"], tuple(header[name]["shape"]), data
    raise DataError(f"{folder}: no {name} in its {len(paths)} safetensors files")


def read(folder, name):
    """A tensor as f32."""
    kind, shape, data = find(folder, name)
    if kind == "I8":
        scales = read(folder, name + SCALES)
        if len(shape) != 2 or scales.shape != shape[:1]:
            raise DataError(f"{folder}: {name} is {list(shape)}, {name + SCALES} {list(scales.shape)}: expected one scale for each row")
        return numpy.frombuffer(data, "i1").reshape(shape) * scales[:, None]
    if kind == "BF16":
        values = (numpy.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    elif kind in ("F16", "F32"):
        values = numpy.frombuffer(data, "<f2" if kind == "F16" else "<f4").astype("<f4")
    else:
        raise DataError(f"{folder}: {name} is of type {kind}, expected BF16, F16, F32 or I8")
    return values.reshape(shape)


def write_trained(folder, config, content):
    """content: {name: (shape, bytes in bf16)}, or with a type: (shape, bytes, type)."""
    llama_folder.write_folder(folder, config, content, "BF16", TRAINED)


def bf16_bytes(values):
    """f32 to the nearest bf16, ties to even."""
    bits = numpy.ascontiguousarray(values, "<f4").view("<u4")
    return ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def as_integers(name, values):
    """What write_trained takes for a matrix, each row rounded to multiples of its largest value / 127."""
    scales = numpy.maximum(numpy.abs(values).max(1), 1e-30).astype("<f4") / 127
    rounded = numpy.rint(values / scales[:, None]).astype("i1")
    return {name: (values.shape, rounded.tobytes(), "I8"), name + SCALES: (scales.shape, scales.tobytes(), "F32")}


def ids_of_head(ids, vocab=None):
    """What write_trained takes for the ids of the head's rows, ascending. vocab: also t2d, by which other tools know the ids of the target that
    the head can say."""
    distances = (ids - numpy.arange(len(ids))).astype("<i8")
    content = {HEAD_IDS: (distances.shape, distances.tobytes(), "I64")}
    if vocab:
        said = numpy.zeros(vocab, "u1")
        said[ids] = 1
        content["t2d"] = ((vocab,), said.tobytes(), "BOOL")
    return content


def draft_vocabulary(trained, config):
    """The ids whose rows the draft's head has."""
    kind, shape, data = find(trained, HEAD_IDS)
    rows, vocab = config.get("draft_vocab_size"), config["vocab_size"]
    if kind != "I64" or shape != (rows,):
        raise DataError(f"{trained}: {HEAD_IDS} is {kind} {list(shape)}, expected I64 [{rows}] by draft_vocab_size")
    ids = numpy.arange(rows) + numpy.frombuffer(data, "<i8")
    if rows == 0 or rows >= vocab or ids[0] < 0 or ids[-1] >= vocab or (numpy.diff(ids) <= 0).any():
        raise DataError(f"{trained}: {HEAD_IDS} gives no ascending ids of a vocabulary of {vocab}, fewer than all")
    return ids


def put_together(trained, target, out):
    """Writes the draft as a folder that coppice-draft serves: what was trained, with the target's embedding, its head or some rows of
    it, and its tokenizer, by which drafts keep to the format of an output."""
    config, other = config_of(trained), config_of(target)
    for name in ("hidden_size", "vocab_size", "tie_word_embeddings"):
        if config.get(name) != other.get(name):
            raise DataError(f"{target}: {name} is {other.get(name)!r}, the draft was trained for {config.get(name)!r}")
    with open(os.path.join(trained, TRAINED), "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    content = {}
    if "draft_vocab_size" in config or HEAD_IDS in header:
        ids = draft_vocabulary(trained, config)
        rows = read(target, EMBEDDING if config.get("tie_word_embeddings") else HEAD)[ids]
        content = {HEAD_IDS: (*find(trained, HEAD_IDS)[1:], "I64"), HEAD: (rows.shape, bf16_bytes(rows))}
    for name in header:
        if name not in ("__metadata__", HEAD_IDS) and not name.endswith(SCALES):
            kind, shape, data = find(trained, name)
            content[name] = (shape, data if kind == "BF16" else bf16_bytes(read(trained, name)))
    for name in (EMBEDDING,) if config.get("tie_word_embeddings") or HEAD in content else (EMBEDDING, HEAD):
        kind, shape, data = find(target, name)
        content[name] = (shape, data if kind == "BF16" else bf16_bytes(read(target, name)))
    if HEAD_IDS in content:
        config["tie_word_embeddings"] = False
    write_model(out, config, content, target)


def write_model(out, config, content, target):
    """Writes a model folder: config.json, tensors {name: (shape, bytes in bf16)}, or with a type behind, and the tokenizer of the target."""
    llama_folder.write_folder(out, config, content, "BF16")
    for name in TOKENIZERS:
        if os.path.isfile(os.path.join(target, name)):
            shutil.copyfile(os.path.join(target, name), os.path.join(out, name))
