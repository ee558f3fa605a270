#!/usr/bin/env python3
# /// script
# dependencies = ["torch", "transformers", "safetensors", "dflash==0.1.0"]
# ///
"""Compares a tiny block drafter and the states that its target keeps for it with the code that publishes DFlash, in double
precision: package dflash for the drafter, Transformers for the target. Needs packages of PyPI that nothing else needs.

    python3 tests/model/with_published_drafter.py build/release/bin/model_logits
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers
from dflash.model import DFlashDraftModel, extract_context_feature

BOUND = 2e-5       # largest difference / largest logit
BF16 = 2.0 ** -8   # of a state, which is rounded
TOKENS, ROOT = [3, 17, 90, 4, 4, 61, 33, 8, 25, 77, 12, 50, 6], 41


def run(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def load_drafter(folder):
    config = transformers.Qwen3Config(**json.loads((folder / "config.json").read_text()))
    config._attn_implementation = "sdpa"
    model = DFlashDraftModel(config).double().eval()
    missing, unexpected = model.load_state_dict(safetensors.torch.load_file(folder / "model.safetensors"), strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    return model


@torch.inference_mode()
def main(program):
    with tempfile.TemporaryDirectory() as temporary:
        draft, target = pathlib.Path(temporary, "draft"), pathlib.Path(temporary, "target")
        draft.mkdir(), target.mkdir()
        run(program, "--tiny-drafter", draft, target)
        drafter = load_drafter(draft)
        reader = transformers.AutoModelForCausalLM.from_pretrained(target, dtype=torch.float64).eval()
        rows = drafter.block_size
        lines = run(program, "--block", draft, target, rows, ROOT, *TOKENS).splitlines()
        printed = [line for line in lines if not line.startswith("[")]  # without the log
        printed = [torch.tensor([float(value) for value in line.split()], dtype=torch.float64) for line in printed]
        states, logits = torch.stack(printed[:len(TOKENS)]), torch.stack(printed[len(TOKENS):])

        outputs = reader(torch.tensor([TOKENS]), output_hidden_states=True).hidden_states
        joined = drafter.hidden_norm(drafter.fc(extract_context_feature(outputs, drafter.target_layer_ids)))[0]
        of_states = ((states - joined).abs() / joined.abs().clamp_min(1e-2)).max().item()

        drafter.fc = drafter.hidden_norm = torch.nn.Identity()  # the states are joined already
        block = torch.tensor([[ROOT] + [drafter.mask_token_id] * (rows - 1)])
        hidden = drafter(position_ids=torch.arange(len(TOKENS) + rows)[None], noise_embedding=reader.model.embed_tokens(block),
                         target_hidden=states[None])
        wanted = drafter.compute_logits(hidden, reader.lm_head)[0]
        of_logits = ((logits - wanted).abs().max() / wanted.abs().max()).item()
    print(f"dflash, Transformers {transformers.__version__}: states differ by {of_states:.2g} of their value, "
          f"logits of {rows} rows by {of_logits:.2g}")
    return of_states < BF16 and of_logits < BOUND


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1]) else 1)
