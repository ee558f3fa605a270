#!/usr/bin/env python3
"""Converts a GGUF file of Llama architecture into a Hugging Face folder that coppice serves: config.json, model.safetensors,
the tokenizer with its chat template, generation_config.json. Needs numpy.

  gguf_to_folder.py FILE.gguf DIR [--dtype bf16|f32]

Reads tensors in F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K, and tokenizers of the kinds gpt2 (byte-level BPE)
and llama (SentencePiece). What it cannot read it refuses in one line. DIR must not exist; it appears when it is whole.
"""
import argparse
import dataclasses
import json
import os
import signal
import struct
import sys
import time

import numpy as np

import gguf_blocks
from gguf_file import BadModel, GgufFile
from gguf_tokenizer import Tokenizer
from partial_folder import PartialFolder

BLOCK_VALUES = 1 << 22  # of a tensor that are converted at a time
PROGRESS_S = 2.0
DTYPES = {"bf16": ("BF16", "bfloat16", 2), "f32": ("F32", "float32", 4)}  # safetensors, config.json, bytes


@dataclasses.dataclass(frozen=True)
class Part:
    """One tensor of the folder, and where it comes from."""
    name: str         # in the folder
    source: str       # in the GGUF file; "" = zeros
    shape: tuple
    heads: int = 0    # > 0: the rows of each head are interleaved


class LlamaShape:
    """The sizes of the model, as its metadata gives them."""

    def __init__(self, file, vocabulary):
        number = lambda name, **limits: file.number(f"llama.{name}", **dict(dict(least=1, most=1 << 24), **limits))
        self.file = file
        self.layers, self.hidden, self.ffn = number("block_count", most=4096), number("embedding_length"), number("feed_forward_length")
        self.heads = number("attention.head_count")
        self.kv_heads = number("attention.head_count_kv", default=self.heads)
        self.context = number("context_length")
        self.epsilon = number("attention.layer_norm_rms_epsilon", least=1e-12, most=1, whole=False)
        self.theta = number("rope.freq_base", default=10000.0, whole=False, most=1e12)
        if number("expert_count", default=0, least=0):
            raise file.error("metadata llama.expert_count: a mixture of experts is not served")
        if self.heads % self.kv_heads or "llama.attention.key_length" not in file.metadata and self.hidden % self.heads:
            raise file.error(f"metadata llama.attention.head_count: {self.heads} heads, {self.kv_heads} KV heads and a width of "
                             f"{self.hidden} do not fit together")
        self.head_dim = number("attention.key_length", default=self.hidden // self.heads)
        for key in ("attention.value_length", "rope.dimension_count"):
            if number(key, default=self.head_dim) != self.head_dim:
                raise file.error(f"metadata llama.{key}: {number(key)}, expected the size of a head ({self.head_dim})")
        if self.head_dim % 2:
            raise file.error(f"metadata llama: heads of size {self.head_dim}, expected an even number")
        self.vocabulary = vocabulary
        self.rope_scaling = self._rope_scaling(number)

    def _rope_scaling(self, number):
        """As llama.cpp reads it: a file without a type means linear, and old ones have another key for the factor. 0 is no factor."""
        kind = self.file.text("llama.rope.scaling.type", default="linear")
        if kind not in ("none", "linear"):
            raise self.file.error(f"metadata llama.rope.scaling.type: {kind} is not read (none and linear are)")
        if number("rope.scaling.attn_factor", default=1.0, whole=False, least=0) != 1:
            raise self.file.error("metadata llama.rope.scaling.attn_factor: a scale of the attention is not read")
        old = number("rope.scale_linear", default=0.0, whole=False, least=0)
        factor = number("rope.scaling.factor", default=old, whole=False, least=0)
        linear = kind == "linear" and factor not in (0, 1)
        if "rope_freqs.weight" not in self.file.tensors:
            return dict(rope_type="linear", factor=factor) if linear else None
        if linear:
            raise self.file.error(f"tensor rope_freqs.weight: not read beside a linear scale of {factor:g}")
        return self._llama3_scaling()

    def _llama3_scaling(self):
        """A file has the divisor of each frequency instead of the four numbers that they come from. Llama 3.1 to 3.3 use low and
        high factors of 1 and 4 and a context of 8192. If these give the divisors, they are the numbers; else it is refused."""
        tensor = self.file.tensors["rope_freqs.weight"]
        if tensor.shape != (self.head_dim // 2,):
            raise self.file.error(f"tensor rope_freqs.weight: {list(tensor.shape)}, expected [{self.head_dim // 2}]")
        divisors = self.file.rows(tensor, 0, tensor.shape[0])
        low, high, context = 1.0, 4.0, 8192
        factor = float(divisors.max())
        turns = context / (2 * np.pi) * self.theta ** (-np.arange(0, self.head_dim, 2) / self.head_dim)  # in the context
        smooth = np.clip((turns - low) / (high - low), 0, 1)
        if not np.allclose(1 / divisors, (1 - smooth) / factor + smooth, rtol=1e-3):
            raise self.file.error("tensor rope_freqs.weight: not the divisors of Llama 3 (factors 1 and 4, context 8192)")
        return dict(rope_type="llama3", factor=factor, low_freq_factor=low, high_freq_factor=high, original_max_position_embeddings=context)

    def config(self, tokenizer, dtype, parts):
        names = {part.name for part in parts}
        return dict(
            architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", hidden_size=self.hidden,
            intermediate_size=self.ffn, num_hidden_layers=self.layers, num_attention_heads=self.heads, num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim, vocab_size=self.vocabulary, max_position_embeddings=self.context,
            # The file has float32. 1e-5 is not stored exactly; the shortest number that gives the same float32 is meant.
            rms_norm_eps=float(str(np.float32(self.epsilon))), rope_theta=float(self.theta),
            **({"rope_scaling": self.rope_scaling} if self.rope_scaling else {}),
            tie_word_embeddings="lm_head.weight" not in names, attention_bias="model.layers.0.self_attn.q_proj.bias" in names,
            mlp_bias="model.layers.0.mlp.up_proj.bias" in names, torch_dtype=DTYPES[dtype][1],
            **{key: value for key, value in (("bos_token_id", tokenizer.bos), ("eos_token_id", tokenizer.eos)) if value is not None})

    def parts(self):
        """All tensors of the folder, in file order. BadModel names one that is missing, has another shape, or is unknown."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        parts = [Part("model.embed_tokens.weight", "token_embd.weight", (self.vocabulary, self.hidden))]
        matrices = (("self_attn.q_proj", "attn_q", query, self.hidden, self.heads), ("self_attn.k_proj", "attn_k", key, self.hidden, self.kv_heads),
                    ("self_attn.v_proj", "attn_v", key, self.hidden, 0), ("self_attn.o_proj", "attn_output", self.hidden, query, 0),
                    ("mlp.gate_proj", "ffn_gate", self.ffn, self.hidden, 0), ("mlp.up_proj", "ffn_up", self.ffn, self.hidden, 0),
                    ("mlp.down_proj", "ffn_down", self.hidden, self.ffn, 0))
        for layer in range(self.layers):
            ours, theirs = f"model.layers.{layer}.", f"blk.{layer}."
            parts += [Part(ours + "input_layernorm.weight", theirs + "attn_norm.weight", (self.hidden,)),
                      Part(ours + "post_attention_layernorm.weight", theirs + "ffn_norm.weight", (self.hidden,))]
            parts += [Part(f"{ours}{name}.weight", f"{theirs}{source}.weight", (rows, columns), heads)
                      for name, source, rows, columns, heads in matrices]
            parts += [Part(f"{ours}{name}.bias", self._present(f"{theirs}{source}.bias"), (rows,), heads)
                      for name, source, rows, _, heads in matrices if self._has_bias(name.split(".")[0])]
        parts.append(Part("model.norm.weight", "output_norm.weight", (self.hidden,)))
        if "output.weight" in self.file.tensors:
            parts.append(Part("lm_head.weight", "output.weight", (self.vocabulary, self.hidden)))
        self._check(parts)
        return parts

    def _has_bias(self, group):
        """A folder has the biases of all matrices of attention, or none; the same for the MLP."""
        prefix = "attn_" if group == "self_attn" else "ffn_"
        return any(name.startswith("blk.") and name.endswith(".bias") and name.split(".")[2].startswith(prefix) for name in self.file.tensors)

    def _present(self, name):
        return name if name in self.file.tensors else ""

    def _check(self, parts):
        for part in parts:
            tensor = self.file.tensors.get(part.source)
            if part.source and tensor is None:
                raise self.file.error(f"tensor {part.source} is missing")
            if tensor and tensor.shape != part.shape:
                raise self.file.error(f"tensor {part.source}: {list(tensor.shape)}, expected {list(part.shape)}")
        unknown = sorted(set(self.file.tensors) - {part.source for part in parts} - {"rope_freqs.weight"})
        if unknown:
            raise self.file.error(f"tensor {unknown[0]} is not a tensor of a Llama")


def in_halves(rows, heads):
    """Undoes the interleaving of a rotary matrix. GGUF rotates neighbours, so within each head it stores rows 0, d/2, 1, d/2+1, ...
    of a Hugging Face matrix, which rotates the first half of a head with the second. rows: [heads * d, columns] or [heads * d]."""
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def blocks_of(file, part):
    """The values of a part in its order, some rows at a time, as float32."""
    if not part.source:
        yield np.zeros(part.shape, np.float32)
        return
    tensor = file.tensors[part.source]
    if part.heads or len(part.shape) == 1:
        rows = file.rows(tensor, 0, part.shape[0])
        yield in_halves(rows, part.heads) if part.heads else rows
        return
    step = max(1, BLOCK_VALUES // part.shape[1])
    for begin in range(0, part.shape[0], step):
        yield file.rows(tensor, begin, min(begin + step, part.shape[0]))


def write_checkpoint(file, parts, dtype, path, say):
    kind, _, size = DTYPES[dtype]
    header, total = {"__metadata__": {"format": "pt"}}, 0
    for part in parts:
        count = int(np.prod(part.shape, dtype=np.int64)) * size
        header[part.name] = dict(dtype=kind, shape=list(part.shape), data_offsets=[total, total + count])
        total += count
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    done, told = 0, time.monotonic()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(encoded)) + encoded)
        for i, part in enumerate(parts):
            for values in blocks_of(file, part):
                data = gguf_blocks.bf16_bits(values) if dtype == "bf16" else values.astype("<f4")
                out.write(data.tobytes())
                done += data.nbytes
                if time.monotonic() - told >= PROGRESS_S:
                    told = time.monotonic()
                    say(f"{i + 1} of {len(parts)} tensors, {done / 1e6:.0f} of {total / 1e6:.0f} MB")
    return total


def convert(source, out, dtype="bf16", say=print):
    """Makes the folder `out`. BadModel: the file is not one that can be served; OSError: what the system says."""
    started = time.monotonic()
    with GgufFile(source) as file:
        architecture = file.text("general.architecture")
        if architecture != "llama":
            raise file.error(f"metadata general.architecture: {architecture} is not read (llama is)")
        if file.number("split.count", default=1, least=0) > 1:
            raise file.error("metadata split.count: one of several parts of a model, expected a whole one")
        tokenizer = Tokenizer(file)
        embedding = file.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2 or embedding.shape[0] < len(tokenizer.tokens):
            raise file.error(f"tensor token_embd.weight: expected a matrix with at least {len(tokenizer.tokens)} rows, one for each token")
        shape = LlamaShape(file, embedding.shape[0])
        parts = shape.parts()
        types = sorted({gguf_blocks.type_name(tensor.type) for tensor in file.tensors.values()})
        say(f"{os.path.basename(source)}: a Llama of {shape.layers} layers, width {shape.hidden}, {len(tokenizer.tokens)} tokens, in {', '.join(types)}")
        with PartialFolder(out) as folder:
            tokenizer.write(folder.path)
            with open(os.path.join(folder.path, "config.json"), "w", encoding="utf8") as config:
                json.dump(shape.config(tokenizer, dtype, parts), config, indent=1)
                config.write("\n")
            total = write_checkpoint(file, parts, dtype, os.path.join(folder.path, "model.safetensors"), say)
            folder.finish()
    say(f"{out}: {len(parts)} tensors, {total / 1e6:.0f} MB in {dtype}, {time.monotonic() - started:.1f} s")


def end_by_signal(number, _):
    """A signal ends the program as an exception does, so that nothing half-made is left."""
    sys.exit(128 + number)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("out", metavar="dir")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bf16", help="of the folder's weights")
    args = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_by_signal)
    try:
        convert(args.file, args.out, args.dtype, lambda text: print(f"gguf_to_folder: {text}", flush=True))
    except (BadModel, OSError) as error:
        sys.exit(f"gguf_to_folder: {error}")


if __name__ == "__main__":
    main()
