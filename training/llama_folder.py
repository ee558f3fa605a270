"""Writes a Llama model folder in Hugging Face format: config.json and model.safetensors. The training tool and the tests share
this file, so it uses only the Python standard library."""
import contextlib
import json
import os
import struct


def tensor_shapes(hidden, layers, heads, kv_heads, ffn, vocab):
    """{name: shape} of every tensor of a Llama with a tied head, in file order. Linear weights are [out, in]."""
    head_dim = hidden // heads
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        shapes.update({
            prefix + "input_layernorm.weight": (hidden,),
            prefix + "post_attention_layernorm.weight": (hidden,),
            prefix + "self_attn.q_proj.weight": (heads * head_dim, hidden),
            prefix + "self_attn.k_proj.weight": (kv_heads * head_dim, hidden),
            prefix + "self_attn.v_proj.weight": (kv_heads * head_dim, hidden),
            prefix + "self_attn.o_proj.weight": (hidden, heads * head_dim),
            prefix + "mlp.gate_proj.weight": (ffn, hidden),
            prefix + "mlp.up_proj.weight": (ffn, hidden),
            prefix + "mlp.down_proj.weight": (hidden, ffn),
        })
    return shapes


def config(hidden, layers, heads, kv_heads, ffn, vocab, context, theta=10000.0, torch_dtype="float32"):
    """The content of config.json for a Llama with a tied head. Ids 1 and 2 are BOS and EOS."""
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": hidden // heads,
        "vocab_size": vocab, "max_position_embeddings": context, "rms_norm_eps": 1e-5,
        "rope_theta": theta, "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
        "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": torch_dtype,
    }


def write_folder(out, model_config, tensors, dtype="F32", file_name="model.safetensors"):
    """tensors: name -> (shape, little-endian bytes of the dtype), or with a dtype of its own behind. Each file is replaced as a whole."""
    os.makedirs(out, exist_ok=True)
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, data, *own) in tensors.items():
        header[name] = {"dtype": own[0] if own else dtype, "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with _replaced(os.path.join(out, file_name)) as file:
        file.write(struct.pack("<Q", len(encoded)))
        file.write(encoded)
        for _, data, *_ in tensors.values():
            file.write(data)
    with _replaced(os.path.join(out, "config.json")) as file:
        file.write(json.dumps(model_config, indent=1).encode())


@contextlib.contextmanager
def _replaced(path):
    """A binary file that takes the place of path once it is written."""
    with open(path + ".new", "wb") as file:
        yield file
    os.replace(path + ".new", path)
