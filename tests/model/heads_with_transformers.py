#!/usr/bin/env python3
# /// script
# dependencies = ["torch", "transformers", "safetensors"]
# ///
"""Compares EAGLE-3 heads with PyTorch in double precision: the target is a model of Transformers, the head is put together of its Llama
parts as the published code does. Heads are written in the layouts of their publishers; one is a pytorch_model.bin that PyTorch writes.
Needs packages of PyPI that nothing else needs.

    python3 tests/model/heads_with_transformers.py build/release/bin/model_head_logits
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers
from transformers.models.llama import modeling_llama as llama

LOGITS = 2e-5  # largest difference / largest logit
STATES = 2 ** -8  # a state is rounded to bf16; relative to its value, and 1e-5 of the largest
TOKENS = [5, 17, 3, 44, 60, 8, 21, 90, 33, 2, 71]
DRAFTED = 3
SMALL = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2, vocab_size=120,
             max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)
TARGETS = {"Llama": transformers.LlamaConfig(**SMALL), "Qwen3": transformers.Qwen3Config(head_dim=20, **SMALL)}
IDS = list(range(1, 120, 2))  # of the draft vocabulary


def noise(generator, *shape):
    return torch.randn(shape, generator=generator) * (1.5 / shape[-1] ** 0.5 if len(shape) > 1 else 0.2) + (len(shape) == 1)


class Head(torch.nn.Module):
    """embedding: the target's, [vocabulary, hidden]."""

    def __init__(self, embedding, layers, width, whole_norm, each_norm, normed_residual, normed_output):
        super().__init__()
        hidden, of_target = width or embedding.shape[1], embedding.shape[1]
        config = transformers.LlamaConfig(**dict(SMALL, hidden_size=hidden, num_hidden_layers=1, head_dim=16))
        config._attn_implementation = "eager"
        self.config, self.target_layers = config, layers
        self.normed_residual, self.normed_output = normed_residual, normed_output
        linear = lambda inputs, outputs: torch.nn.Linear(inputs, outputs, bias=False)
        self.embed_tokens = torch.nn.Embedding(*((len(embedding), hidden) if width else embedding.shape))
        self.fc = linear(len(layers) * of_target, hidden)
        self.input_norm = llama.LlamaRMSNorm(len(layers) * of_target, config.rms_norm_eps) if whole_norm else None
        self.fc_norm = torch.nn.ModuleList(llama.LlamaRMSNorm(of_target, config.rms_norm_eps) for _ in layers) if each_norm else None
        layer = torch.nn.Module()
        layer.self_attn = llama.LlamaAttention(config, 0)
        for name in "qkv":
            layer.self_attn.register_module(name + "_proj", linear(2 * hidden, getattr(layer.self_attn, name + "_proj").out_features))
        layer.mlp = llama.LlamaMLP(config)
        for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
            layer.register_module(name, llama.LlamaRMSNorm(hidden, config.rms_norm_eps))
        self.midlayer, self.norm, self.lm_head = layer, llama.LlamaRMSNorm(hidden, config.rms_norm_eps), linear(hidden, len(IDS))
        generator = torch.Generator().manual_seed(11)
        with torch.no_grad():
            for value in self.parameters():
                value.copy_(noise(generator, *value.shape))
            if not width:
                self.embed_tokens.weight.copy_(embedding)

    def join(self, outputs):
        """outputs: of the layers of the target, each [tokens, hidden of the target]."""
        if self.fc_norm is not None:
            outputs = [norm(output) for norm, output in zip(self.fc_norm, outputs)]
        joined = torch.cat(outputs, -1)
        return self.fc(self.input_norm(joined) if self.input_norm is not None else joined)

    def forward(self, tokens, states):
        """[rows] and [rows, hidden]; returns logits of the vocabulary, and what each row hands on."""
        layer, normed = self.midlayer, self.midlayer.hidden_norm(states)
        x = normed if self.normed_residual else states
        inputs = torch.cat([layer.input_layernorm(self.embed_tokens(tokens)), normed], -1)
        mask = torch.full((len(tokens), len(tokens)), -math.inf, dtype=x.dtype).triu(1)[None, None]
        # LlamaRotaryEmbedding has its frequencies in f32.
        frequencies = self.config.rope_parameters["rope_theta"] ** (-torch.arange(8).double() / 8)
        angles = torch.arange(len(tokens)).double()[:, None] * frequencies
        angles = torch.cat([angles, angles], -1)[None]
        attended = layer.self_attn(hidden_states=inputs[None], position_embeddings=(angles.cos(), angles.sin()), attention_mask=mask)
        x = x + attended[0][0]
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        last = self.norm(x)
        logits = torch.full((len(tokens), SMALL["vocab_size"]), -math.inf, dtype=x.dtype)
        logits[:, IDS] = self.lm_head(last)
        return logits, last if self.normed_output else x


def write_head(head, folder, layout, own_embedding):
    config = head.config.to_dict()
    config["torch_dtype"] = "float32"
    outer = {"draft_vocab_size": len(IDS), "tie_word_embeddings": False}
    if head.config.hidden_size != SMALL["hidden_size"]:
        outer["target_hidden_size"] = SMALL["hidden_size"]
    if layout == "speculators":
        outer |= {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "transformer_layer_config": config,
                  "eagle_aux_hidden_state_layer_ids": [layer + 1 for layer in head.target_layers],
                  "norm_before_residual": head.normed_residual, "norm_output": head.normed_output,
                  "norm_before_fc": head.input_norm is not None, "fc_norm": head.fc_norm is not None}
    else:
        outer |= config | outer | {"architectures": ["LlamaForCausalLM" if layout == "authors" else "LlamaForCausalLMEagle3"]}
        if layout == "SpecForge":
            outer["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": head.target_layers}
    (folder / "config.json").write_text(json.dumps(outer))
    tensors = {name: value.detach().float().contiguous() for name, value in head.state_dict().items()}
    if not own_embedding:
        del tensors["embed_tokens.weight"]
    if layout == "speculators":
        tensors = {name.replace("midlayer.", "layers.0."): value for name, value in tensors.items()}
    tensors["d2t"] = torch.tensor([id - row for row, id in enumerate(IDS)])
    tensors["t2d"] = torch.tensor([id in IDS for id in range(SMALL["vocab_size"])])
    if layout == "authors":
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        safetensors.torch.save_file(tensors, folder / "model.safetensors")


def found(program, head, target):
    """States and logits, [rows, ...], of all tokens but the first."""
    out = subprocess.run([program, head, target, str(DRAFTED), *map(str, TOKENS)], capture_output=True, text=True)
    if out.returncode != 0:
        raise SystemExit(f"{program}: {out.stderr}")
    rows = [[float(value) for value in line.split()] for line in out.stdout.splitlines() if not line.startswith("[")]
    return torch.tensor(rows[0::2], dtype=torch.float64), torch.tensor(rows[1::2], dtype=torch.float64)


def compare(program, name, family, layout, own_embedding=False, **parts):
    with tempfile.TemporaryDirectory() as folder:
        target_folder, head_folder = pathlib.Path(folder) / "target", pathlib.Path(folder) / "head"
        head_folder.mkdir()
        torch.manual_seed(3)
        target = transformers.AutoModelForCausalLM.from_config(TARGETS[family], attn_implementation="eager")
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for value in target.parameters():
                value.copy_(noise(generator, *value.shape))
        target.save_pretrained(target_folder)
        options = dict(layers=[1, 3, 4], width=0, whole_norm=False, each_norm=False, normed_residual=False, normed_output=False) | parts
        head = Head(target.get_input_embeddings().weight.detach(), **options)
        write_head(head, head_folder, layout, own_embedding or options["width"])
        states, logits = found(program, head_folder, target_folder)
        head, target = head.double().eval(), target.double().eval()
        with torch.no_grad():
            outputs = target(torch.tensor([TOKENS[:-DRAFTED]]), output_hidden_states=True).hidden_states
            true = head.join([outputs[layer + 1][0] for layer in head.target_layers])[:-1]
            expected, handed_on = head(torch.tensor(TOKENS[1:]), states)
        # Rows with true states, then those that begin with what the row before has handed on.
        wanted = torch.cat([true, handed_on[len(true) - 1:-1]])[:len(states)]
        in_states = ((states - wanted).abs() - STATES * wanted.abs()).max() / wanted.abs().max()
        kept = expected[:, IDS]
        in_logits = (logits[:, IDS] - kept).abs().max() / kept.abs().max()
        others = [id for id in range(SMALL["vocab_size"]) if id not in IDS]
        good = len(wanted) == len(states) and in_states < 1e-5 and in_logits < LOGITS and bool((logits[:, others] == -math.inf).all())
        print(f"{'ok  ' if good else 'FAIL'} {name}: states beyond bf16 {max(in_states, 0):.1e}, logits {in_logits:.1e}")
        return good


def main():
    program = sys.argv[1]
    transformers.utils.logging.disable_progress_bar()
    cases = [
        ("authors", "Llama", "authors", {}),
        ("SpecForge", "Llama", "SpecForge", dict(layers=[6, 0, 3])),
        ("SpecForge, Qwen3", "Qwen3", "SpecForge", {}),
        ("wider than its target", "Llama", "SpecForge", dict(width=64)),
        ("speculators", "Qwen3", "speculators", {}),
        ("speculators, norms", "Llama", "speculators", dict(whole_norm=True, normed_residual=True, normed_output=True)),
        ("speculators, a norm of each layer", "Llama", "speculators", dict(each_norm=True, own_embedding=True)),
    ]
    results = [compare(program, name, family, layout, **parts) for name, family, layout, parts in cases]
    print(f"{sum(results)} of {len(results)} heads equal, Transformers {transformers.__version__}")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
