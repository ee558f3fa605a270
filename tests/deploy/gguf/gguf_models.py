"""The models that the tests convert: the small pair's target as a GGUF file, and a small random one in every quantisation. Each comes with
the folder that its conversion must give, written directly."""
import json
import pathlib
import random
import struct
import subprocess
import sys

from gguf_writer import (BF16, BOOL, F16, F32, FLOAT, I32, LIST, MERGES, ROOT, SPECIAL, TEXT, U32, byte_level_metadata, byte_vocabulary, gguf_name,
                         interleaved, llama_metadata, write_gguf)
from scalar_blocks import SCALAR, random_blocks, scalar_values

import llama_folder

DEMO = ROOT / "tests/models/stories260k"
TOOL = ROOT / "deploy/models/gguf_to_folder.py"
BYTE_LEVEL = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
DIGITS = dict(type="Sequence", pretokenizers=[dict(type="Digits", individual_digits=True), BYTE_LEVEL])


def convert(source, out, *flags):
    """stdout of a conversion, which must succeed."""
    result = subprocess.run([sys.executable, "-B", TOOL, source, out, *flags], capture_output=True, text=True)
    if result.returncode != 0 or result.stderr:
        raise AssertionError(result.stdout + result.stderr)
    return result.stdout


def read_safetensors(folder):
    """{name: (dtype, shape, bytes)}"""
    data = (pathlib.Path(folder) / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = (entry["dtype"], tuple(entry["shape"]), data[8 + length + begin:8 + length + end])
    return tensors


def read_pieces(data):
    """(text, score, kind) of every piece of a SentencePiece file."""
    def varint(at):
        value, shift = 0, 0
        while True:
            value |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 128:
                return value, at

    def fields(at, end):
        while at < end:
            tag, at = varint(at)
            if tag & 7 == 2:
                length, at = varint(at)
                yield tag >> 3, (at, at + length)
                at += length
            elif tag & 7 == 5:
                yield tag >> 3, struct.unpack("<f", data[at:at + 4])[0]
                at += 4
            else:
                value, at = varint(at)
                yield tag >> 3, value

    for field, value in fields(0, len(data)):
        if field == 1:
            piece = dict(fields(*value))
            yield data[slice(*piece[1])].decode(), piece.get(2, 0.0), piece.get(3, 1)


def demo_gguf(path, change=None):
    """The small pair's target in F32 with its SentencePiece vocabulary. change(metadata, tensors) may spoil it."""
    config, generation = (json.loads((DEMO / f"{name}.json").read_text()) for name in ("config", "generation_config"))
    tensors = {}
    for name, (kind, shape, data) in read_safetensors(DEMO).items():
        values = struct.unpack(f"<{len(data) // 4}f", as_f32(kind, data))
        heads = config[{"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}[name.split(".")[-2]]] \
            if name.split(".")[-2] in ("q_proj", "k_proj") else 0
        if heads:
            values = interleaved(values, heads, shape[1])
        tensors[gguf_name(name)] = (shape, F32, struct.pack(f"<{len(values)}f", *values))
    tokens, scores, kinds = zip(*read_pieces((DEMO / "tokenizer.model").read_bytes()))
    metadata = {
        **llama_metadata(config),
        "tokenizer.ggml.model": (TEXT, "llama"),
        "tokenizer.ggml.tokens": (LIST, (TEXT, tokens)),
        "tokenizer.ggml.scores": (LIST, (FLOAT, scores)),
        "tokenizer.ggml.token_type": (LIST, (I32, kinds)),
        "tokenizer.ggml.bos_token_id": (U32, config["bos_token_id"]),
        "tokenizer.ggml.eos_token_id": (U32, config["eos_token_id"]),
        "tokenizer.ggml.eot_token_id": (U32, generation["eos_token_id"][1]),
        "tokenizer.ggml.add_space_prefix": (BOOL, True),
    }
    if change:
        change(metadata, tensors)
        metadata = {key: value for key, value in metadata.items() if value is not None}
    return write_gguf(path, metadata, tensors)


def byte_level(metadata, pre="smollm", **more):
    """Gives the metadata a byte-level vocabulary in place of the one they have."""
    for key in [key for key in metadata if key.startswith("tokenizer.")]:
        del metadata[key]
    metadata.update(byte_level_metadata(pre, **more))


def as_f32(kind, data):
    """The bytes of float32 of a tensor in F32 or BF16."""
    if kind == "F32":
        return data
    assert kind == "BF16", kind
    return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))


# The types of the matrices of the two layers, in the order of llama_folder.tensor_shapes.
TYPES = {"q_proj": (12, F16), "k_proj": (13, F32), "v_proj": (14, BF16), "o_proj": (6, 8), "gate_proj": (2, 14), "up_proj": (3, 13),
         "down_proj": (7, 12)}


def quantised_llama(path, folder):
    """A random Llama of two layers whose matrices are in all types, with a byte-level vocabulary: as a GGUF file, and as a folder in
    float32 (without a tokenizer). Two query heads share one KV head; the head is not tied."""
    vocab, hidden = len(byte_vocabulary()), 256
    config = dict(llama_folder.config(hidden, 2, 2, 1, 256, vocab, 256), tie_word_embeddings=False, rope_theta=100000.0)
    shapes = {**llama_folder.tensor_shapes(hidden, 2, 2, 1, 256, vocab), "lm_head.weight": (vocab, hidden)}
    source, plain, stored = random.Random(3), {}, {}
    for name, shape in shapes.items():
        part = name.split(".")[-2]
        kind = 8 if part in ("embed_tokens", "lm_head") else TYPES[part][int(name.split(".")[2])] if part in TYPES else F32
        values, data = random_tensor(kind, shape, source)
        if part == "lm_head":  # special tokens are never the likeliest
            rows = len(SPECIAL)
            values[:rows * hidden], data = [0.0] * rows * hidden, bytes(rows * hidden // 32 * 34) + data[rows * hidden // 32 * 34:]
        stored[gguf_name(name)] = (shape, kind, data)
        heads = {"q_proj": 2, "k_proj": 1}.get(part, 0)
        if heads:  # the blocks are rows of the GGUF file; the folder has them in halves
            size = shape[0] // heads
            order = [head * size + 2 * i % size + (2 * i >= size) for head in range(heads) for i in range(size)]
            values = [value for row in order for value in values[row * shape[1]:(row + 1) * shape[1]]]
        plain[name] = (shape, struct.pack(f"<{len(values)}f", *values))
    llama_folder.write_folder(str(folder), config, plain)
    metadata = {**llama_metadata(config), **byte_level_metadata()}
    return write_gguf(path, metadata, stored)


def random_tensor(kind, shape, source):
    """(values, bytes) of a random tensor of this type; norms are around 1."""
    count = shape[0] * (shape[1] if len(shape) == 2 else 1)
    if kind in SCALAR:
        scale = 0.2 / (128 if kind == 8 else 1024 if kind == 14 else 300 if kind in (12, 13) else 16)
        data = random_blocks(kind, count // SCALAR[kind][1], source, scale)
        return scalar_values(kind, data), data
    values = [source.gauss(0, 0.08) if len(shape) == 2 else source.uniform(0.8, 1.2) for _ in range(count)]
    if kind == BF16:
        data = b"".join(struct.pack("<f", value)[2:] for value in values)
        return list(struct.unpack(f"<{count}f", as_f32("BF16", data))), data
    form = f"<{count}{'e' if kind == F16 else 'f'}"
    data = struct.pack(form, *values)
    return list(struct.unpack(form, data)), data


def tokenizer_json(pre_tokenizer, ignore_merges=False, post_processor=None):
    """The tokenizer.json of the byte-level vocabulary, as Hugging Face writes it."""
    tokens = byte_vocabulary()

    def added(i, special):
        return dict(id=i, content=tokens[i], single_word=False, lstrip=False, rstrip=False, normalized=False, special=special)

    return dict(
        version="1.0", truncation=None, padding=None,
        added_tokens=[added(i, True) for i in range(len(SPECIAL))] + [added(len(tokens) - 1, False)],
        normalizer=None, pre_tokenizer=pre_tokenizer, post_processor=post_processor,
        decoder=dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                   byte_fallback=False, ignore_merges=ignore_merges, vocab={t: i for i, t in enumerate(tokens)}, merges=MERGES))
