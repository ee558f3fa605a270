"""transformers as a peer: generate() with and without beams, on PyTorch's CPU kernels, in f32 and bf16."""
import torch
import transformers

from answering import Refusal, serve
from checkpoint import types_in

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def load(folder, work, kind, threads):
    if kind not in TYPES:
        raise Refusal(f"transformers is not given {kind}")
    if "I8" in types_in(folder):
        raise Refusal("transformers does not know matrices of 8-bit integers with NAME_scale")
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=TYPES[kind], local_files_only=True).eval()
    model.generation_config.eos_token_id = None  # no text ends before its length

    def generate(prompts, width, tokens):
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False,
                                 num_beams=width, pad_token_id=0)
        return out[:, ids.shape[1]:].tolist()

    return f"{transformers.__version__} on PyTorch {torch.__version__}", generate


serve(load)
