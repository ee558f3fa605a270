#!/usr/bin/env python3
"""deploy/models/gguf_to_folder.py: a converted folder has the same tensors, bit for bit, as the folder of the same model that was written
directly. A conversion that is interrupted leaves nothing half-made."""
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

from gguf_writer import CHATML, FLOAT, ROOT, TEXT, U32, byte_vocabulary
from gguf_models import BYTE_LEVEL, DEMO, DIGITS, as_f32, byte_level, convert, demo_gguf, quantised_llama, read_safetensors, tokenizer_json

sys.path.insert(0, str(ROOT / "tests/cluster"))
from stopwatch import at_most  # noqa: E402

TOOL = ROOT / "deploy/models/gguf_to_folder.py"
# Stops at the first line about tensors until it reads a line, so that a test knows where the conversion is.
STOPPING = """
import builtins, sys
sys.path.insert(0, sys.argv.pop(1))
import gguf_to_folder as tool
tool.PROGRESS_S = 0
def stop(text, **_):
    builtins.print(text, flush=True)
    if " of " in text and "MB" in text and " tensors, " in text:
        sys.stdin.readline()
tool.print = stop
tool.main()
"""


def read_json(folder, name):
    return json.loads((pathlib.Path(folder) / name).read_text(encoding="utf8"))


class FolderTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)


class Conversion(FolderTest):
    def test_the_demo_target_comes_back(self):
        converted = self.folder / "converted"
        convert(demo_gguf(self.folder / "demo.gguf"), converted, "--dtype=f32")
        original, got = read_safetensors(DEMO), read_safetensors(converted)
        self.assertEqual(sorted(got), sorted(original))
        for name, (kind, shape, data) in original.items():
            self.assertTrue(got[name] == ("F32", shape, as_f32(kind, data)), name)  # a difference in words would take minutes
        self.assertEqual(read_json(converted, "tokenizer_config.json")["add_bos_token"], True)
        self.assertEqual(read_json(converted, "generation_config.json"), {"bos_token_id": 1, "eos_token_id": [2, 426]})
        self.assertEqual(read_json(converted, "generation_config.json"), read_json(DEMO, "generation_config.json"))

    def test_bf16_is_the_default(self):
        converted = self.folder / "converted"
        convert(demo_gguf(self.folder / "demo.gguf"), converted)
        for name, (kind, shape, data) in read_safetensors(converted).items():
            self.assertEqual(kind, "BF16")
            values = as_f32("BF16", data)
            original = read_safetensors(DEMO)[name]
            exact = as_f32(original[0], original[2])
            for i in range(0, len(exact), 4 * 101):  # a sample
                bits, rounded = struct.unpack("<I", exact[i:i + 4])[0], struct.unpack("<I", values[i:i + 4])[0]
                self.assertLessEqual(abs(bits - rounded), 1 << 15, (name, i))
        self.assertEqual(read_json(converted, "config.json")["torch_dtype"], "bfloat16")

    def test_every_quantisation_in_a_model(self):
        direct, converted = self.folder / "direct", self.folder / "converted"
        output = convert(quantised_llama(self.folder / "model.gguf", direct), converted, "--dtype=f32")
        for name in ("BF16", "F16", "F32", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0"):
            self.assertIn(name, output.splitlines()[0])
        want, got = read_safetensors(direct), read_safetensors(converted)
        self.assertEqual(sorted(got), sorted(want))
        for name in want:
            self.assertTrue(got[name] == want[name], name)
        config, plain = read_json(converted, "config.json"), read_json(direct, "config.json")
        for key, value in plain.items():
            self.assertEqual(config[key], value, key)

    def test_byte_level_tokenizer(self):
        first = byte_vocabulary()[1]
        before = dict(SpecialToken=dict(id=first, type_id=0))
        text, second = dict(Sequence=dict(id="A", type_id=0)), dict(Sequence=dict(id="B", type_id=1))
        bos = dict(type="TemplateProcessing", single=[before, text], pair=[before, text, before, second],
                   special_tokens={first: dict(id=first, ids=[1], tokens=[first])})
        words = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
        split = dict(type="Split", pattern=dict(Regex=words), behavior="Isolated", invert=False)
        llama3 = dict(type="Sequence", pretokenizers=[split, dict(BYTE_LEVEL, use_regex=False)])
        cases = {"smollm": tokenizer_json(DIGITS), "gpt-2": tokenizer_json(BYTE_LEVEL),
                 "llama-bpe": tokenizer_json(llama3, ignore_merges=True, post_processor=bos)}
        for pre, want in cases.items():
            with self.subTest(pre):
                def change(metadata, _, pre=pre):
                    byte_level(metadata, pre)
                    if pre == "llama-bpe":  # begins texts with BOS without being told
                        del metadata["tokenizer.ggml.add_bos_token"]
                converted = self.folder / pre
                convert(demo_gguf(self.folder / "demo.gguf", change), converted)
                self.assertEqual(read_json(converted, "tokenizer.json"), want)
                config = read_json(converted, "tokenizer_config.json")
                self.assertEqual((config["chat_template"], config["eos_token"], config["add_bos_token"]),
                                 (CHATML, "<|im_end|>", pre == "llama-bpe"))

    def test_an_answer_also_ends_where_the_template_ends_a_turn(self):
        def change(metadata, _):
            byte_level(metadata, **{"tokenizer.ggml.eos_token_id": (U32, 0)})
        convert(demo_gguf(self.folder / "demo.gguf", change), self.folder / "out")
        self.assertEqual(read_json(self.folder / "out", "generation_config.json")["eos_token_id"], [0, 2])

    def test_rotary_settings(self):
        def llama3(metadata, tensors):
            head, theta = 8, 500000.0
            metadata["llama.rope.freq_base"] = (FLOAT, theta)
            divisors = []
            for i in range(head // 2):
                wavelength = 2 * 3.141592653589793 * theta ** (2 * i / head)
                if wavelength < 8192 / 4:
                    divisors.append(1.0)
                elif wavelength > 8192:
                    divisors.append(32.0)
                else:
                    smooth = (8192 / wavelength - 1) / 3
                    divisors.append(1 / ((1 - smooth) / 32 + smooth))
            self.assertTrue(1 < sorted(set(divisors))[1] < 32)
            tensors["rope_freqs.weight"] = ((head // 2,), 0, struct.pack(f"<{head // 2}f", *divisors))

        def scale(**pairs):
            def change(metadata, _):
                metadata.update({f"llama.rope.{key.replace('__', '.')}": value for key, value in pairs.items()})
            return change

        linear = dict(rope_type="linear", factor=4.0)
        four, eight = (FLOAT, 4.0), (FLOAT, 8.0)
        for name, change, want in (
                ("llama3", llama3, dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                        original_max_position_embeddings=8192)),
                ("linear", scale(scaling__type=(TEXT, "linear"), scaling__factor=four), linear),
                ("no type", scale(scaling__factor=four), linear),
                ("old key", scale(scale_linear=four), linear),
                ("old key with type", scale(scaling__type=(TEXT, "linear"), scale_linear=four), linear),
                ("both keys", scale(scaling__factor=four, scale_linear=eight), linear),
                ("type none", scale(scaling__type=(TEXT, "none"), scaling__factor=four, scale_linear=four), None),
                ("type alone", scale(scaling__type=(TEXT, "linear")), None),
                ("factor 1", scale(scale_linear=(FLOAT, 1.0)), None),
                ("factor 0", scale(scaling__factor=(FLOAT, 0.0)), None)):
            with self.subTest(name):
                convert(demo_gguf(self.folder / "demo.gguf", change), self.folder / name)
                self.assertEqual(read_json(self.folder / name, "config.json").get("rope_scaling"), want)

    def test_biases_of_attention(self):
        def change(metadata, tensors):
            for name in ("attn_q", "attn_k", "attn_v"):
                width = tensors[f"blk.0.{name}.weight"][0][0]
                for layer in range(5):
                    tensors[f"blk.{layer}.{name}.bias"] = ((width,), 0, struct.pack(f"<{width}f", *range(width)))
        converted = self.folder / "converted"
        convert(demo_gguf(self.folder / "demo.gguf", change), converted, "--dtype=f32")
        tensors, width, size = read_safetensors(converted), 32, 8  # four KV heads
        values = struct.unpack(f"<{width}f", tensors["model.layers.3.self_attn.k_proj.bias"][2])
        self.assertEqual(values[:size], tuple(range(0, size, 2)) + tuple(range(1, size, 2)))
        self.assertEqual(struct.unpack(f"<{width}f", tensors["model.layers.3.self_attn.v_proj.bias"][2]), tuple(range(width)))
        self.assertEqual(set(tensors["model.layers.0.self_attn.o_proj.bias"][2]), {0})
        self.assertEqual(read_json(converted, "config.json")["attention_bias"], True)


class Interruption(FolderTest):
    def start(self, out):
        """A conversion that has begun to write and waits."""
        process = subprocess.Popen([sys.executable, "-B", "-c", STOPPING, ROOT / "deploy/models", self.folder / "demo.gguf", out],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        while " tensors, " not in (line := process.stdout.readline()):
            self.assertNotEqual(line, "")
        return process

    def test_an_interrupted_conversion_leaves_nothing(self):
        demo_gguf(self.folder / "demo.gguf")
        out = self.folder / "models" / "out"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = self.start(out)
            self.assertTrue((out.parent / "out.partial").is_dir())
            self.assertFalse(out.exists())
            process.send_signal(number)
            self.assertEqual(process.wait(timeout=at_most(60)), 128 + number)
            self.assertEqual(os.listdir(out.parent), [])

    def test_a_killed_conversion_is_done_again(self):
        demo_gguf(self.folder / "demo.gguf")
        out = self.folder / "out"
        process = self.start(out)
        (self.folder / "out.partial" / "left over").mkdir()
        process.kill()
        process.wait(timeout=at_most(60))
        self.assertFalse(out.exists())
        convert(self.folder / "demo.gguf", out)
        self.assertEqual(sorted(os.listdir(self.folder)), ["demo.gguf", "out"])
        self.assertEqual(sorted(os.listdir(out)), ["config.json", "generation_config.json", "model.safetensors", "tokenizer.model",
                                                   "tokenizer_config.json"])

    def test_two_conversions_of_one_folder(self):
        demo_gguf(self.folder / "demo.gguf")
        out = self.folder / "out"
        first = self.start(out)
        second = subprocess.run([sys.executable, "-B", TOOL, self.folder / "demo.gguf", out], capture_output=True, text=True)
        self.assertEqual((second.returncode, second.stderr),
                         (1, f"gguf_to_folder: {out}.partial: another process is writing it\n"))
        first.stdin.close()  # it reads the end of its input each time, and goes on
        self.assertIn("MB in bf16", first.stdout.read())
        self.assertEqual(first.wait(timeout=at_most(60)), 0)
        third = subprocess.run([sys.executable, "-B", TOOL, self.folder / "demo.gguf", out], capture_output=True, text=True)
        self.assertEqual((third.returncode, third.stderr), (1, f"gguf_to_folder: {out}: exists already\n"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
