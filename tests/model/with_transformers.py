#!/usr/bin/env python3
# /// script
# dependencies = ["torch", "transformers", "numpy"]
# ///
"""Compares the logits of every family with those of Transformers in double precision: for the tiny checkpoints of the tests, and for
checkpoints that Transformers makes of its own configurations, with random weights. Needs packages of PyPI that nothing else needs.

    python3 tests/model/with_transformers.py build/release/bin/model_logits
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers

BOUND = 2e-5  # largest difference / largest logit
SMALL = dict(hidden_size=48, num_hidden_layers=6, num_attention_heads=4, vocab_size=120, max_position_embeddings=128, pad_token_id=0,
             bos_token_id=1, eos_token_id=2)
GATED = dict(SMALL, num_key_value_heads=2, intermediate_size=80)
OWN = {
    "LlamaConfig": GATED,
    "MistralConfig": dict(GATED, sliding_window=9),
    "Qwen2Config": dict(GATED, use_sliding_window=True, sliding_window=10, max_window_layers=3),
    "Qwen3Config": dict(GATED, head_dim=20),
    "GraniteConfig": dict(GATED, embedding_multiplier=6.0, attention_multiplier=0.2, residual_multiplier=0.3, logits_scaling=4.0),
    "Gemma2Config": dict(GATED, head_dim=16, query_pre_attn_scalar=20, sliding_window=7),
    "Gemma3TextConfig": dict(GATED, head_dim=16, query_pre_attn_scalar=20, sliding_window=7),
    "OPTConfig": dict(SMALL, ffn_dim=80, word_embed_proj_dim=48),
    "OPTConfig/350m": dict(SMALL, ffn_dim=80, word_embed_proj_dim=24, do_layer_norm_before=False),
    "MixtralConfig": dict(GATED, num_local_experts=5, num_experts_per_tok=2, sliding_window=None),
    "Qwen3MoeConfig": dict(GATED, head_dim=16, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=40, norm_topk_prob=True,
                           decoder_sparse_step=2),
    "Olmo2Config": GATED,
    "GPTNeoXConfig": dict(SMALL, intermediate_size=80),
    "Phi3Config": dict(GATED, sliding_window=11),
    "SmolLM3Config": dict(GATED),
}


def randomise(model):
    """Weights that make every part matter: also biases and gains, which a new model has as zeros and ones."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = torch.randn(value.shape, generator=generator, dtype=value.dtype)
            value.copy_(noise * (1.5 / value.shape[-1] ** 0.5 if value.dim() > 1 else 0.2) + (value if value.dim() == 1 else 0))


def expected(folder, tokens):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager",
                                                               experts_implementation="eager").eval()
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].numpy()


def found(program, folder, tokens):
    lines = subprocess.run([program, folder, *map(str, tokens)], check=True, capture_output=True, text=True).stdout.splitlines()
    return numpy.array([[float(value) for value in line.split()] for line in lines])


def compare(program, name, folder, vocabulary):
    tokens = [(i * 37 + 11) % vocabulary for i in range(75)]
    want, got = expected(folder, tokens), found(program, folder, tokens)
    error = numpy.abs(want - got).max() / numpy.abs(want).max()
    same = (want.argmax(1) == got.argmax(1)).mean()
    print(f"{name:28} error {error:.1e}, greedy tokens equal {same:.0%}", flush=True)
    return error < BOUND


def main(program):
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    good = True
    for name in subprocess.run([program, "--names"], check=True, capture_output=True, text=True).stdout.split():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([program, "--tiny", name, folder], check=True)
            good &= compare(program, name, folder, json.loads((pathlib.Path(folder) / "config.json").read_text())["vocab_size"])
    for name, fields in OWN.items():
        with tempfile.TemporaryDirectory() as folder:
            config = getattr(transformers, name.split("/")[0])(**fields)
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
            randomise(model)
            model.save_pretrained(folder)
            good &= compare(program, name, folder, fields["vocab_size"])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
