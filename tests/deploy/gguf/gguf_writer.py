"""Writes GGUF files for tests: a small Llama of given tensors and vocabulary. Python standard library only, and independent of the
reader in deploy/models."""
import pathlib
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "deploy/models"), str(ROOT / "training")]

U32, I32, FLOAT, BOOL, TEXT, LIST = 4, 5, 6, 7, 8, 9
FORMS = {U32: "<I", I32: "<i", FLOAT: "<f", BOOL: "<?", 10: "<Q"}
F32, F16, BF16 = 0, 1, 30


def _text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(kind, value):
    if kind == TEXT:
        return _text(value)
    if kind == LIST:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(_value(inner, item) for item in items)
    return struct.pack(FORMS[kind], value)


def write_gguf(path, metadata, tensors, version=3, alignment=32):
    """metadata: {key: (type, value)}, the value of a list is (type, items). tensors: {name: (shape, type, bytes)}, rows first."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, (kind, value) in metadata.items():
        head += _text(key) + struct.pack("<I", kind) + _value(kind, value)
    data = b""
    for name, (shape, kind, content) in tensors.items():
        head += _text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % alignment)
    pathlib.Path(path).write_bytes(head + bytes(-len(head) % alignment) + data)
    return pathlib.Path(path)


def interleaved(values, heads, width):
    """The rows of a rotary matrix as GGUF has them: row 2i of a head is row i of Hugging Face, row 2i+1 is row i + d/2.
    values: flat list of [rows, width]."""
    rows = [values[i:i + width] for i in range(0, len(values), width)]
    size, out = len(rows) // heads, []
    for head in range(heads):
        for i in range(size):
            out += rows[head * size + i // 2 + (size // 2 if i % 2 else 0)]
    return out


# The tensors of a layer: name in a Hugging Face folder -> name in a GGUF file.
LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down"}


def gguf_name(name):
    """The GGUF name of a tensor of a Hugging Face folder."""
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name in ("model.norm.weight", "lm_head.weight"):
        return {"model": "output_norm.weight", "lm_head": "output.weight"}[name.split(".")[0]]
    _, _, layer, rest = name.split(".", 3)
    part, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{LAYER[part]}.{kind}"


def llama_metadata(config):
    """Of a folder's config.json."""
    return {
        "general.architecture": (TEXT, "llama"),
        "llama.block_count": (U32, config["num_hidden_layers"]),
        "llama.context_length": (U32, config["max_position_embeddings"]),
        "llama.embedding_length": (U32, config["hidden_size"]),
        "llama.feed_forward_length": (U32, config["intermediate_size"]),
        "llama.attention.head_count": (U32, config["num_attention_heads"]),
        "llama.attention.head_count_kv": (U32, config["num_key_value_heads"]),
        "llama.attention.layer_norm_rms_epsilon": (FLOAT, config["rms_norm_eps"]),
        "llama.rope.freq_base": (FLOAT, config["rope_theta"]),
        "llama.rope.dimension_count": (U32, config["hidden_size"] // config["num_attention_heads"]),
    }


# ---- a byte-level vocabulary ----
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "Ġ t", "Ġt he", "1 2", "i n", "Ġ Ġ"]
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def byte_letters():
    """The letter that byte-level BPE writes for each byte: itself if it is printable, else the next one from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def byte_vocabulary():
    """Tokens: the special ones, all bytes, the merges, a word that was added."""
    return SPECIAL + byte_letters() + [merge.replace(" ", "") for merge in MERGES] + ["<added word>"]


def byte_level_metadata(pre="smollm", **more):
    tokens = byte_vocabulary()
    return {
        "tokenizer.ggml.model": (TEXT, "gpt2"),
        "tokenizer.ggml.pre": (TEXT, pre),
        "tokenizer.ggml.tokens": (LIST, (TEXT, tokens)),
        "tokenizer.ggml.token_type": (LIST, (I32, [3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL) - 1) + [4])),
        "tokenizer.ggml.merges": (LIST, (TEXT, MERGES)),
        "tokenizer.ggml.bos_token_id": (U32, 1),
        "tokenizer.ggml.eos_token_id": (U32, 2),
        "tokenizer.ggml.unknown_token_id": (U32, 0),
        "tokenizer.ggml.add_bos_token": (BOOL, False),
        "tokenizer.chat_template": (TEXT, CHATML),
        **more,
    }
