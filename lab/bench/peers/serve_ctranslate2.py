"""CTranslate2 as a peer: greedy and beam search on the CPU, in f32 and int8. Its tokens are named t0, t1, ..., so that ids need no
tokenizer. Its own converter needs PyTorch; the layout here is that of its LlamaLoader."""
import os

import ctranslate2
import numpy
from ctranslate2.specs import common_spec, transformer_spec

from answering import Refusal, serve
from checkpoint import Checkpoint

TYPES = {"f32": "float32", "bf16": "bfloat16", "int8": "int8_float32"}


def convert(folder, out):
    model = Checkpoint(folder)
    if model.head_dim * model.heads != model.number("hidden_size"):
        raise Refusal("CTranslate2 is given only models whose heads fill the hidden size")
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        model.layers, model.heads, activation=common_spec.Activation.SWISH, pre_norm=True, ffn_glu=True, rms_norm=True, rotary_dim=0,
        rotary_interleave=False, rotary_base=model.number("rope_theta", 10000.0),
        num_heads_kv=None if model.kv_heads == model.heads else model.kv_heads)
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = model["model.embed_tokens.weight"]
    decoder.projection.weight = model["model.embed_tokens.weight" if model.tied else "lm_head.weight"]
    decoder.layer_norm.gamma = model["model.norm.weight"]
    for i, layer in enumerate(decoder.layer):
        name = f"model.layers.{i}."
        layer.self_attention.layer_norm.gamma = model[name + "input_layernorm.weight"]
        layer.self_attention.linear[0].weight = numpy.concatenate([model[f"{name}self_attn.{part}_proj.weight"] for part in "qkv"])
        layer.self_attention.linear[1].weight = model[name + "self_attn.o_proj.weight"]
        layer.ffn.layer_norm.gamma = model[name + "post_attention_layernorm.weight"]
        layer.ffn.linear_0.weight = model[name + "mlp.gate_proj.weight"]
        layer.ffn.linear_0_noact.weight = model[name + "mlp.up_proj.weight"]
        layer.ffn.linear_1.weight = model[name + "mlp.down_proj.weight"]
    vocabulary = model.number("vocab_size")
    spec.register_vocabulary([f"t{i}" for i in range(vocabulary)])
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "t0", "t0", "t0"
    spec.config.layer_norm_epsilon = model.number("rms_norm_eps")
    spec.validate()
    spec.optimize(quantization="float32")
    os.makedirs(out)
    spec.save(out)


def load(folder, work, kind, threads):
    if kind not in TYPES or TYPES[kind] not in ctranslate2.get_supported_compute_types("cpu"):
        raise Refusal(f"CTranslate2 {ctranslate2.__version__} does not compute in {kind} on this CPU")
    converted = os.path.join(work, "ctranslate2")
    if not os.path.isdir(converted):
        convert(folder, converted)
    generator = ctranslate2.Generator(converted, device="cpu", compute_type=TYPES[kind], inter_threads=1, intra_threads=threads)

    def generate(prompts, width, tokens, best=None):
        # Texts must all be of the length asked for: the token that ends one is t0, which min_length forbids.
        results = generator.generate_batch([[f"t{i}" for i in ids] for ids in prompts], beam_size=width, max_length=tokens,
                                           min_length=tokens, include_prompt_in_result=False, end_token="t0", num_hypotheses=best or 1)
        return [result.sequences_ids if best else result.sequences_ids[0] for result in results]

    return ctranslate2.__version__, generate


serve(load)
