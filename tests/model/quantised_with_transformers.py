#!/usr/bin/env python3
# /// script
# dependencies = ["torch", "transformers", "numpy", "safetensors"]
# ///
"""Quantises a small Llama with PyTorch as the tools of each method store it, and compares the logits of the folder with those of
Transformers for the values that its tensors stand for. Needs packages of PyPI that nothing else needs.

    python3 tests/model/quantised_with_transformers.py build/release/bin/model_logits
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors.torch import save_file

BOUND = 1e-5  # largest difference / largest logit
GROUP = 32
TOKENS = [(i * 37 + 11) % 96 for i in range(40)]
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def packed(codes, bits):
    """Codes [..., n] in words [..., n * bits / 32], the first lowest."""
    parts = codes.to(torch.int64).reshape(*codes.shape[:-1], -1, 32 // bits)
    words = sum(parts[..., i] << (bits * i) for i in range(32 // bits))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def in_groups(weight, bits, symmetric):
    """Codes [out, in], zeros and scales [out, groups], and the values [out, in]."""
    x = weight.reshape(weight.shape[0], -1, GROUP)
    most = 2**bits - 1
    if symmetric:
        scales = (x.abs().amax(-1) / (most // 2)).half().float()
        zeros = torch.full_like(scales, (most + 1) // 2)
    else:
        low, high = x.amin(-1).clamp(max=0), x.amax(-1).clamp(min=0)
        scales = ((high - low) / most).half().float()
        zeros = (-low / scales).round().clamp(0, most)
    codes = ((x / scales[..., None]).round() + zeros[..., None]).clamp(0, most)
    values = scales[..., None] * (codes - zeros[..., None])
    return codes.reshape(weight.shape), zeros, scales.half(), values.reshape(weight.shape)


def gptq(bits, symmetric, less):
    def quantise(name, weight, tensors):
        codes, zeros, scales, values = in_groups(weight, bits, symmetric)
        tensors[f"{name}.qweight"] = packed(codes, bits).T
        tensors[f"{name}.qzeros"] = packed((zeros.T.to(torch.int64) - less) % 2**bits, bits)
        tensors[f"{name}.scales"] = scales.T
        tensors[f"{name}.g_idx"] = torch.arange(weight.shape[1], dtype=torch.int32) // GROUP
        return values
    return quantise


def awq(name, weight, tensors):
    codes, zeros, scales, values = in_groups(weight, 4, False)
    ordered = lambda x: packed(x.reshape(*x.shape[:-1], -1, 8)[..., AWQ_ORDER].reshape(x.shape), 4)
    tensors[f"{name}.qweight"], tensors[f"{name}.qzeros"] = ordered(codes.T.contiguous()), ordered(zeros.T.contiguous())
    tensors[f"{name}.scales"] = scales.T
    return values


def pack_quantized(bits, symmetric=True):
    def quantise(name, weight, tensors):
        codes, zeros, scales, values = in_groups(weight, bits, symmetric)
        tensors[f"{name}.weight_packed"], tensors[f"{name}.weight_scale"] = packed(codes, bits), scales
        tensors[f"{name}.weight_shape"] = torch.tensor(weight.shape)
        if not symmetric:
            tensors[f"{name}.weight_zero_point"] = packed(zeros.T.contiguous(), bits).T
        return values
    return quantise


def int8(name, weight, tensors):
    scales = (weight.abs().amax(1, keepdim=True) / 127).bfloat16()
    codes = (weight / scales.float()).round().clamp(-128, 127).to(torch.int8)
    tensors[f"{name}.weight"], tensors[f"{name}.weight_scale"] = codes, scales
    return codes.float() * scales.float()


def fp8(block):
    """block: the side of a block, or 0: each row has a scale."""
    def quantise(name, weight, tensors):
        rows, columns = (block, block) if block else (1, weight.shape[1])
        scales = weight.reshape(weight.shape[0] // rows, rows, -1, columns).abs().amax((1, 3)) / 448
        spread = scales.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
        codes = (weight / spread).to(torch.float8_e4m3fn)
        tensors[f"{name}.weight"], tensors[f"{name}.weight_scale{'_inv' if block else ''}"] = codes, scales
        return codes.float() * spread
    return quantise


def compressed(form, **weights):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"], "sparsity_config": {}, "transform_config": {},
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"symmetric": True, **weights}}}}


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True}
CASES = {
    "gptq": (dict(GPTQ, sym=True), gptq(4, True, 1)),
    "gptq with zeros": (dict(GPTQ, sym=False), gptq(4, False, 1)),
    "gptq_v2 with zeros": (dict(GPTQ, sym=False, checkpoint_format="gptq_v2"), gptq(4, False, 0)),
    "gptq of 8 bits": (dict(GPTQ, sym=True, bits=8), gptq(8, True, 1)),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}, awq),
    "pack-quantized": (compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=GROUP), pack_quantized(4)),
    "pack-quantized with zeros": (compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=GROUP,
                                             symmetric=False), pack_quantized(4, symmetric=False)),
    "pack-quantized of 8 bits": (compressed("pack-quantized", num_bits=8, type="int", strategy="group", group_size=GROUP),
                                 pack_quantized(8)),
    "int-quantized": (compressed("int-quantized", num_bits=8, type="int", strategy="channel"), int8),
    "float-quantized": (compressed("float-quantized", num_bits=8, type="float", strategy="channel"), fp8(0)),
    "fp8 in blocks": ({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [32, 32]}, fp8(32)),
}


def small_llama():
    config = transformers.LlamaConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, vocab_size=96, max_position_embeddings=128, tie_word_embeddings=False)
    model = transformers.LlamaForCausalLM(config).float()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() == 2:
                value.copy_(torch.randn(value.shape, generator=generator) * 1.5 / value.shape[1] ** 0.5)
    return model


def compare(program, name, settings, quantise):
    model, tensors = small_llama(), {}
    with torch.no_grad():
        for full, value in model.named_parameters():
            if full.endswith("_proj.weight"):
                value.copy_(quantise(full.removesuffix(".weight"), value, tensors))
            else:
                tensors[full] = value.clone()
        want = model(torch.tensor([TOKENS])).logits[0].numpy()
    with tempfile.TemporaryDirectory() as folder:
        config = dict(model.config.to_dict(), architectures=["LlamaForCausalLM"], quantization_config=settings)
        pathlib.Path(folder, "config.json").write_text(json.dumps(config, default=str))
        save_file({key: value.contiguous() for key, value in tensors.items()}, f"{folder}/model.safetensors")
        lines = subprocess.run([program, folder, *map(str, TOKENS)], check=True, capture_output=True, text=True).stdout.splitlines()
    got = numpy.array([[float(value) for value in line.split()] for line in lines])
    error = numpy.abs(want - got).max() / numpy.abs(want).max()
    print(f"{name:28} error {error:.1e}", flush=True)
    return error < BOUND


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    good = [compare(sys.argv[1], name, *case) for name, case in CASES.items()]
    print(f"{sum(good)} of {len(good)} within {BOUND}")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
