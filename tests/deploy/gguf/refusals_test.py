#!/usr/bin/env python3
"""What deploy/models/gguf_to_folder.py cannot read it refuses in one line that names the file and what is wrong, and writes nothing."""
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

from gguf_writer import FLOAT, LIST, ROOT, TEXT, U32
from gguf_models import byte_level, demo_gguf

import gguf_to_folder
from gguf_file import BadModel

TOOL = ROOT / "deploy/models/gguf_to_folder.py"


def metadata_of(**changes):
    """A change that sets metadata; None removes a pair."""
    def change(metadata, _):
        metadata.update({key.replace("__", "."): value for key, value in changes.items()})
    return change


def vocabulary(pre="smollm", **changes):
    def change(metadata, tensors):
        byte_level(metadata, pre)
        metadata_of(**changes)(metadata, tensors)
    return change


def tensor(name, shape=None, kind=0, data=None):
    """Replaces a tensor; without a shape it is removed."""
    def change(_, tensors):
        if shape is None:
            del tensors[name]
        else:
            tensors[name] = (shape, kind, data if data is not None else bytes(4 * shape[0] * (shape[1] if len(shape) > 1 else 1)))
    return change


def both(first, second):
    def change(metadata, tensors):
        first(metadata, tensors)
        second(metadata, tensors)
    return change


def twice_the_token(metadata, _):
    kind, (inner, items) = metadata["tokenizer.ggml.tokens"]
    metadata["tokenizer.ggml.tokens"] = (kind, (inner, items[:300] + (items[299],) + items[301:]))


def not_a_number(_, tensors):
    shape, kind, data = tensors["blk.2.ffn_up.weight"]
    tensors["blk.2.ffn_up.weight"] = (shape, kind, data[:400] + struct.pack("<f", float("nan")) + data[404:])


CASES = {
    "another architecture": (metadata_of(general__architecture=(TEXT, "qwen2")), "metadata general.architecture: qwen2 is not read (llama is)"),
    "no architecture": (metadata_of(general__architecture=None), "metadata general.architecture is missing"),
    "a quantisation that is not read": (tensor("blk.1.ffn_down.weight", (64, 172), 23),
                                        "tensor blk.1.ffn_down.weight: type IQ4_XS is not read"),
    "a quantisation that nobody knows": (tensor("blk.1.ffn_down.weight", (64, 172), 77),
                                         "tensor blk.1.ffn_down.weight: type number 77 is not read"),
    "rows that are no whole blocks": (tensor("blk.0.attn_q.weight", (64, 64), 14),
                                      "tensor blk.0.attn_q.weight: rows of 64 values, expected a multiple of 256 (Q6_K)"),
    "a missing tensor": (tensor("blk.3.attn_v.weight"), "tensor blk.3.attn_v.weight is missing"),
    "no embedding": (tensor("token_embd.weight"), "tensor token_embd.weight: expected a matrix with at least 512 rows"),
    "too few rows": (tensor("token_embd.weight", (500, 64)), "tensor token_embd.weight: expected a matrix with at least 512 rows"),
    "a wrong shape": (tensor("blk.3.attn_v.weight", (16, 64)), "tensor blk.3.attn_v.weight: [16, 64], expected [32, 64]"),
    "a tensor of another family": (tensor("blk.0.attn_q_norm.weight", (32,)), "tensor blk.0.attn_q_norm.weight is not a tensor of a Llama"),
    "a mixture of experts": (metadata_of(llama__expert_count=(U32, 8)), "metadata llama.expert_count: a mixture of experts"),
    "part of the head is rotated": (metadata_of(llama__rope__dimension_count=(U32, 16)), "metadata llama.rope.dimension_count: 16, expected"),
    "another scaling": (metadata_of(llama__rope__scaling__type=(TEXT, "yarn")), "metadata llama.rope.scaling.type: yarn is not read"),
    "a scale of the attention": (metadata_of(llama__rope__scaling__attn_factor=(FLOAT, 1.25)),
                                 "metadata llama.rope.scaling.attn_factor: a scale of the attention is not read"),
    "a negative scale": (metadata_of(llama__rope__scale_linear=(FLOAT, -2.0)), "metadata llama.rope.scale_linear: -2.0, expected a number"),
    "divisors and a scale": (both(tensor("rope_freqs.weight", (4,), 0, struct.pack("<4f", 1, 1, 1, 1)), metadata_of(llama__rope__scale_linear=(FLOAT, 2.0))),
                             "tensor rope_freqs.weight: not read beside a linear scale of 2"),
    "unknown divisors": (tensor("rope_freqs.weight", (4,), 0, struct.pack("<4f", *range(1, 5))), "tensor rope_freqs.weight: not the divisors"),
    "a size for each layer": (metadata_of(llama__feed_forward_length=(LIST, (U32, [172] * 5))),
                              "metadata llama.feed_forward_length: [172, 172, 172, 172, 172], expected a number"),
    "a missing size": (metadata_of(llama__embedding_length=None), "metadata llama.embedding_length is missing"),
    "one of several files": (metadata_of(split__count=(U32, 3)), "metadata split.count: one of several parts"),
    "heads that do not fit": (metadata_of(llama__attention__head_count_kv=(U32, 3)), "metadata llama.attention.head_count: 8 heads, 3 KV heads"),
    "another tokenizer": (metadata_of(tokenizer__ggml__model=(TEXT, "t5")), "metadata tokenizer.ggml.model: a tokenizer of kind t5 is not read"),
    "no tokenizer": (metadata_of(tokenizer__ggml__model=None), "metadata tokenizer.ggml.model is missing"),
    "another kind of words": (vocabulary("tekken"), "metadata tokenizer.ggml.pre: words of kind tekken are not read"),
    "no kind of words": (vocabulary(tokenizer__ggml__pre=None), "metadata tokenizer.ggml.pre: words of kind default are not read"),
    "a merge of unknown parts": (vocabulary(tokenizer__ggml__merges=(LIST, (TEXT, ["h e", "q z"]))),
                                 "metadata tokenizer.ggml.merges[1]: 'q z', expected two tokens that form a third"),
    "a special token that is not there": (metadata_of(tokenizer__ggml__eos_token_id=(U32, 5000)),
                                          "metadata tokenizer.ggml.eos_token_id: 5000, expected a number from 0 to 511"),
    "fewer scores than tokens": (metadata_of(tokenizer__ggml__scores=(LIST, (FLOAT, [0.0] * 7))),
                                 "metadata tokenizer.ggml.scores: 7 values for 512 tokens"),
    "a token that appears twice": (twice_the_token, "is both token 299 and token 300"),
    "a weight that is no number": (not_a_number, "tensor blk.2.ffn_up.weight: has values that are not finite"),
}


class Refusals(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.source, self.out = self.folder / "model.gguf", self.folder / "out"

    def refusal(self):
        """The message of the conversion in this process, which must leave nothing."""
        with self.assertRaises(BadModel) as caught:
            gguf_to_folder.convert(self.source, self.out, say=lambda _: None)
        self.assertEqual(os.listdir(self.folder), ["model.gguf"])
        return str(caught.exception)

    def test_every_refusal_names_what_is_wrong(self):
        for name, (change, reason) in CASES.items():
            with self.subTest(name):
                demo_gguf(self.source, change)
                message = self.refusal()
                self.assertTrue(message.startswith(f"{self.source}: "), message)
                self.assertIn(reason, message)
                self.assertNotIn("\n", message)

    def test_the_program_says_it_in_one_line(self):
        demo_gguf(self.source, CASES["another architecture"][0])
        for source, reason in ((self.source, "metadata general.architecture: qwen2 is not read (llama is)"),
                               (self.folder / "none.gguf", "No such file or directory"), (self.folder, "Is a directory")):
            result = subprocess.run([sys.executable, "-B", TOOL, source, self.out], capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (1, "", f"gguf_to_folder: {source}: {reason}\n"))

    def test_other_files(self):
        for content, reason in ((b"", "0 bytes, expected a GGUF file"), (b"GGUF", "4 bytes"), (b"\x93NUMPY" + bytes(90), "expected a GGUF file"),
                                (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1, expected 2 or 3"),
                                (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
                                (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "ends at byte 24 inside of the name of tensor 0 (truncated?)"),
                                (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "ends at byte 24 inside of the name of metadata pair 0")):
            self.source.write_bytes(content)
            self.assertIn(reason, self.refusal())

    def test_a_pipe_or_an_endless_header(self):
        os.mkfifo(self.source)  # nobody writes to it
        self.assertEqual(self.refusal(), f"{self.source}: not a regular file")
        self.source.unlink()
        # One metadata pair, an array of bytes: most of a sparse file of 6 GB.
        self.source.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a" + struct.pack("<IIQ", 9, 0, 5 << 30))
        os.truncate(self.source, 6 << 30)
        self.assertIn("metadata a: the header has more than 268435456 bytes", self.refusal())

    def test_a_truncated_file_is_refused_wherever_it_ends(self):
        whole = demo_gguf(self.source).read_bytes()
        source = random.Random(1)
        for length in (len(whole) - 32, len(whole) // 2, 13000, *(source.randrange(24, 17000) for _ in range(40))):
            self.source.write_bytes(whole[:length])
            self.assertIn("(truncated?)", self.refusal())

    def test_changed_bytes_never_break_the_reader(self):
        """A changed header is refused with a message, or read as another model: no other exception, no long wait."""
        whole = demo_gguf(self.source).read_bytes()
        source, refused = random.Random(2), 0
        for _ in range(60):
            data = bytearray(whole)
            for _ in range(3):
                data[source.choice((source.randrange(900), source.randrange(14000)))] = source.randrange(256)
            self.source.write_bytes(data)
            try:
                gguf_to_folder.convert(self.source, self.folder / "out", say=lambda _: None)
                for file in os.listdir(self.out):
                    os.unlink(self.out / file)
                self.out.rmdir()
            except BadModel as error:
                refused += 1
                self.assertTrue(str(error).startswith(f"{self.source}: "))
        self.assertGreater(refused, 5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
