"""Beam search of transformers over a trie, for its two programs: generate() with prefix_allowed_tokens_fn on PyTorch's CPU kernels."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
import numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from answering import Refusal  # noqa: E402
from item_trie import Trie  # noqa: E402

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def loader(prompt_once):
    """The load() of answering.py. prompt_once: the prompt is read once, and its cache repeated for the beams; otherwise generate() reads it for
    every beam."""
    def load(folder, work, kind, threads):
        if kind not in TYPES:
            raise Refusal(f"transformers is not given {kind}")
        torch.set_num_threads(threads)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=TYPES[kind], local_files_only=True).eval()
        model.generation_config.eos_token_id = None  # an item ends by its length
        trie = Trie(numpy.load(pathlib.Path(work).parent / "items.npy"))
        root = torch.from_numpy(trie.children(0, 0))

        def generate(prompts, width, tokens, best):
            ids = torch.tensor(prompts)
            length, past = ids.shape[1], {}

            def allowed(_, text):
                if len(text) == length:
                    return root
                return torch.from_numpy(trie.children(len(text) - length, trie.find(text[length:].tolist())))

            with torch.inference_mode():
                if prompt_once:
                    cache = transformers.DynamicCache(config=model.config)
                    model(ids[:, :-1], past_key_values=cache, use_cache=True, logits_to_keep=1)
                    cache.batch_repeat_interleave(width)
                    past = {"past_key_values": cache}
                out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, num_beams=width,
                                     num_return_sequences=best, prefix_allowed_tokens_fn=allowed, pad_token_id=0, **past)
            return out[:, length:].reshape(len(prompts), best, -1).tolist()

        return f"{transformers.__version__} on PyTorch {torch.__version__}", generate

    return load
