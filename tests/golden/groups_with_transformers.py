#!/usr/bin/env python3
# /// script
# dependencies = ["torch", "transformers==4.57.6"]
# ///
"""Compares the searches in groups of search_options.json, with policy FIRST, with the scorer and the diversity penalty of Transformers
(version 4 has them). Needs packages of PyPI that nothing else needs.

    python3 tests/golden/groups_with_transformers.py
"""
import json
import math
import pathlib
import sys
import warnings

warnings.filterwarnings("ignore")
import torch
import transformers
from transformers.generation.beam_search import BeamSearchScorer
from transformers.generation.logits_process import HammingDiversityLogitsProcessor

MASK = 2**64 - 1
NEAR = 1e-5  # the scorer keeps scores in single precision


def mixed(z):
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & MASK
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def log_row(case, path):
    """HashLM (README.md) after a path."""
    key = 0x9E3779B97F4A7C15
    for token in path:
        key = mixed(key + 0x9E3779B97F4A7C15 * (token + 1) & MASK)
    weights = [(1 + (mixed(key ^ mixed(v + 1000003 * case["salt"])) >> 60)) ** case["power"] for v in range(case["V"])]
    return [math.log(weight / sum(weights)) for weight in weights]


def search(case):
    """[(tokens, score)] by Transformers, whose loop over groups this is. Token V pads, and stands for the prompt."""
    width, groups, vocab, eos = case["W"], case["num_beam_groups"], case["V"], case["eos"]
    size, columns, longest = width // groups, vocab + 1, case["max_len"] + 1
    scorer = BeamSearchScorer(batch_size=1, num_beams=width, device="cpu", length_penalty=case["length_alpha"], do_early_stopping=True,
                              num_beam_hyps_to_keep=case["n"], num_beam_groups=groups, max_length=longest)
    penalty = HammingDiversityLogitsProcessor(diversity_penalty=case["diversity_penalty"], num_beams=width, num_beam_groups=groups)
    ids = torch.full((width, 1), vocab)
    scores = torch.full((width,), -1e9)
    scores[::size] = 0
    while not scorer.is_done and ids.shape[1] < longest:
        current = torch.zeros(width, dtype=ids.dtype)
        parents = ids.clone()
        for group in range(groups):
            own = slice(group * size, group * size + size)
            paths = [[token for token in path if token < vocab] for path in ids[own].tolist()]
            rows = torch.tensor([log_row(case, path) + [-math.inf] for path in paths])
            rows = penalty(ids[own], rows, current_tokens=current, beam_group_idx=group)
            keys = (rows + scores[own].unsqueeze(-1)).view(-1)
            order = sorted(range(size * columns), key=lambda i: (-keys[i].item(), i))[:2 * size]
            chosen = torch.tensor([order])
            out = scorer.process(ids[own], keys[chosen], chosen % columns, chosen // columns, pad_token_id=vocab, eos_token_id=eos,
                                 group_index=group, decoder_prompt_len=1)
            scores[own] = out["next_beam_scores"]
            parents[own] = ids[own][out["next_beam_indices"]]
            current[own] = out["next_beam_tokens"]
        ids = torch.cat([parents, current.unsqueeze(-1)], dim=-1)
    out = scorer.finalize(ids, scores, current, torch.zeros_like(current), max_length=longest, pad_token_id=vocab, eos_token_id=eos,
                          decoder_prompt_len=1)
    texts = [[token for token in path if token < vocab] for path in out["sequences"].tolist()]
    return list(zip(texts, out["sequence_scores"].tolist()))


def same(case, want):
    got = search(case)
    return len(got) == len(want) and all(text == entry["path"] and abs(score - entry["normalised"]) < NEAR
                                         for (text, score), entry in zip(got, want))


def main():
    torch.set_default_dtype(torch.float64)
    cases = json.loads((pathlib.Path(__file__).parent / "search_options.json").read_text())["cases"]
    others = ("no_repeat_ngram_size", "min_score")
    grouped = [case for case in cases if "num_beam_groups" in case["inputs"] and case["inputs"]["policy"] == "FIRST"
               and isinstance(case["inputs"]["W"], int) and not any(name in case["inputs"] for name in others)]
    wrong = [case["name"] for case in grouped if not same(case["inputs"], case["expected"]["pool"])]
    print(f"Transformers {transformers.__version__}: {len(grouped) - len(wrong)} of {len(grouped)} searches in groups are the same")
    sys.exit(f"different: {', '.join(wrong)}" if wrong or not grouped else 0)


if __name__ == "__main__":
    main()
