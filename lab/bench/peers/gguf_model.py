"""A Hugging Face folder of Llama architecture as a GGUF file, for the peers that read one: llama.cpp and OpenVINO GenAI."""
import json
import os

import gguf
import numpy
from gguf.quants import quantize

from checkpoint import Checkpoint, interleaved

# {type: (most matrices, embedding, head and QKV)}, as --weight_dtype of Coppice has them.
TENSOR_TYPES = {"f32": ("F32", "F32"), "f16": ("F16", "F16"), "bf16": ("BF16", "BF16"), "int8": ("Q8_0", "Q8_0"), "int4": ("Q4_0", "Q8_0")}
NORMAL, CONTROL = 1, 3  # types of tokens


def add_tokenizer(writer, model):
    """That of tokenizer.json if it is byte-level BPE; otherwise none, and the file serves ids alone."""
    path, size = model.folder / "tokenizer.json", model.number("vocab_size")
    try:
        known = json.loads(path.read_text(encoding="utf8"))
        vocabulary, merges = known["model"]["vocab"], known["model"]["merges"]
        added = {entry["id"]: entry["content"] for entry in known["added_tokens"]}
    except (OSError, ValueError, KeyError):
        writer.add_tokenizer_model("none")
        writer.add_vocab_size(size)
        return
    tokens = {i: text for text, i in vocabulary.items()} | added
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm" if size == 49152 else "gpt-2")
    writer.add_token_list([tokens.get(i, f"[unused {i}]") for i in range(size)])
    writer.add_token_types([CONTROL if i in added or i not in tokens else NORMAL for i in range(size)])
    # An empty list is not written, but engines expect one: then a merge into a token that does not exist.
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges] or ["! !"])
    ends = model.number("eos_token_id", 0)
    writer.add_eos_token_id(ends[0] if isinstance(ends, list) else ends)
    writer.add_bos_token_id(model.number("bos_token_id", 0))
    writer.add_add_bos_token(False)


def write(folder, path, kind):
    """The file appears when it is whole. CheckpointError if the folder is not of Llama architecture."""
    model = Checkpoint(folder)
    matrices, ends = (gguf.GGMLQuantizationType[name] for name in TENSOR_TYPES[kind])
    writer = gguf.GGUFWriter(path + ".new", "llama")
    writer.add_block_count(model.layers)
    writer.add_context_length(model.number("max_position_embeddings"))
    writer.add_embedding_length(model.number("hidden_size"))
    writer.add_feed_forward_length(model.number("intermediate_size"))
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_key_length(model.head_dim)
    writer.add_value_length(model.head_dim)
    writer.add_rope_dimension_count(model.head_dim)
    writer.add_rope_freq_base(model.number("rope_theta", 10000.0))
    writer.add_layer_norm_rms_eps(model.number("rms_norm_eps"))
    writer.add_file_type({"f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16, "bf16": gguf.LlamaFileType.MOSTLY_BF16,
                          "int8": gguf.LlamaFileType.MOSTLY_Q8_0, "int4": gguf.LlamaFileType.MOSTLY_Q4_0}[kind])
    add_tokenizer(writer, model)

    def add(name, values, kept=gguf.GGMLQuantizationType.F32):
        values = numpy.ascontiguousarray(values)
        if kept != gguf.GGMLQuantizationType.F32:
            values = quantize(values, kept)
        writer.add_tensor(name, values, raw_dtype=kept)

    add("token_embd.weight", model["model.embed_tokens.weight"], ends)
    add("output_norm.weight", model["model.norm.weight"])
    if not model.tied:
        add("output.weight", model["lm_head.weight"], ends)
    for i in range(model.layers):
        theirs, ours = f"blk.{i}.", f"model.layers.{i}."
        add(theirs + "attn_norm.weight", model[ours + "input_layernorm.weight"])
        add(theirs + "ffn_norm.weight", model[ours + "post_attention_layernorm.weight"])
        add(theirs + "attn_q.weight", interleaved(model[ours + "self_attn.q_proj.weight"], model.heads), ends)
        add(theirs + "attn_k.weight", interleaved(model[ours + "self_attn.k_proj.weight"], model.kv_heads), ends)
        add(theirs + "attn_v.weight", model[ours + "self_attn.v_proj.weight"], ends)
        add(theirs + "attn_output.weight", model[ours + "self_attn.o_proj.weight"], matrices)
        for part in ("gate", "up", "down"):
            add(f"{theirs}ffn_{part}.weight", model[f"{ours}mlp.{part}_proj.weight"], matrices)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(path + ".new", path)
