"""A Hugging Face folder of Llama architecture as the ONNX graph and settings that ONNX Runtime GenAI runs. Its own builder needs PyTorch; the
operators and names here are those it writes for a CPU: GroupQueryAttention, SkipSimplifiedLayerNormalization, MatMulNBits."""
import json
import os

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from checkpoint import Checkpoint
from quantised import BLOCK, quantised

BITS = {"f32": (None, None), "int8": (8, 8), "int4": (4, 8)}  # {type: (most matrices, QKV and head)}, as Coppice has them


class Graph:
    def __init__(self):
        self.nodes, self.weights = [], []

    def node(self, operator, inputs, outputs, domain="", **attributes):
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=f"{operator}_{len(self.nodes)}", domain=domain, **attributes))
        return outputs[0]

    def weight(self, name, values):
        self.weights.append(numpy_helper.from_array(numpy.ascontiguousarray(values), name))
        return name

    def matmul(self, name, x, weight, bits):
        """x times the transposed weight [rows, columns], which is kept with so many bits; None: as it is."""
        if bits is None:
            return self.node("MatMul", [x, self.weight(name, weight.T)], [name + ".out"])
        values, scales = quantised(weight, bits)
        return self.node("MatMulNBits", [x, self.weight(name, values), self.weight(name + ".scales", scales)], [name + ".out"], "com.microsoft",
                         K=weight.shape[1], N=weight.shape[0], bits=bits, block_size=BLOCK, accuracy_level=4)  # 4: activations in 8 bits

    def norm(self, name, x, residual, weight, epsilon):
        """(normalised x + residual, x + residual)"""
        weight = self.weight(name, weight)
        if residual is None:
            return self.node("SimplifiedLayerNormalization", [x, weight], [name + ".out"], axis=-1, epsilon=epsilon, stash_type=1), x
        self.node("SkipSimplifiedLayerNormalization", [x, residual, weight], [name + ".out", "", "", name + ".sum"], "com.microsoft", epsilon=epsilon)
        return name + ".out", name + ".sum"


def rotations(model, length):
    """(cosines, sines), [length, head_dim / 2] f32"""
    half = model.head_dim // 2
    angles = numpy.arange(length)[:, None] * model.number("rope_theta", 10000.0) ** -(numpy.arange(half) / half)
    return numpy.cos(angles).astype(numpy.float32), numpy.sin(angles).astype(numpy.float32)


def graph_of(model, kind, length):
    graph, epsilon = Graph(), model.number("rms_norm_eps")
    bits, bits_of_ends = BITS[kind]
    cos, sin = (graph.weight(name, values) for name, values in zip(("cos", "sin"), rotations(model, length)))
    one, last = graph.weight("one", numpy.array([1])), graph.weight("last", numpy.array([-1]))
    lengths = graph.node("ReduceSum", ["attention_mask", one], ["lengths"], keepdims=0)
    seen = graph.node("Cast", [graph.node("Sub", [lengths, one], ["lengths_less_one"])], ["seqlens_k"], to=TensorProto.INT32)
    total = graph.node("Gather", [graph.node("Shape", ["attention_mask"], ["mask_shape"]), graph.weight("second", numpy.array(1))], ["total"])
    total = graph.node("Cast", [total], ["total_length"], to=TensorProto.INT32)
    embedding = model["model.embed_tokens.weight"]
    x, residual = graph.node("Gather", [graph.weight("embedding", embedding), "input_ids"], ["embedded"]), None
    for i in range(model.layers):
        name = f"model.layers.{i}."
        normed, residual = graph.norm(name + "input_layernorm", x, residual, model[name + "input_layernorm.weight"], epsilon)
        weight = numpy.concatenate([model[f"{name}self_attn.{part}_proj.weight"] for part in "qkv"])
        qkv = graph.matmul(name + "qkv", normed, weight, bits_of_ends)
        past, present = ([f"{when}.{i}.{what}" for what in ("key", "value")] for when in ("past_key_values", "present"))
        seen_by = graph.node("GroupQueryAttention", [qkv, "", "", *past, seen, total, cos, sin], [name + "attention", *present], "com.microsoft",
                             num_heads=model.heads, kv_num_heads=model.kv_heads, do_rotary=1, rotary_interleaved=0, scale=model.head_dim ** -0.5)
        out = graph.matmul(name + "o", seen_by, model[name + "self_attn.o_proj.weight"], bits)
        normed, residual = graph.norm(name + "post_attention_layernorm", out, residual, model[name + "post_attention_layernorm.weight"], epsilon)
        gate, up = (graph.matmul(name + part, normed, model[f"{name}mlp.{part}_proj.weight"], bits) for part in ("gate", "up"))
        silu = graph.node("Mul", [gate, graph.node("Sigmoid", [gate], [name + "sigmoid"])], [name + "silu"])
        x = graph.matmul(name + "down", graph.node("Mul", [silu, up], [name + "gated"]), model[name + "mlp.down_proj.weight"], bits)
    normed, _ = graph.norm("model.norm", x, residual, model["model.norm.weight"], epsilon)
    ends = graph.node("Gather", [normed, last], ["last_hidden"], axis=1)  # prompts of a batch are equally long
    head = graph.matmul("lm_head", ends, embedding if model.tied else model["lm_head.weight"], bits_of_ends)
    graph.node("Identity", [head], ["logits"])
    kv = ["batch", model.kv_heads, "past", model.head_dim]

    def values(name, kind, shape):
        return helper.make_tensor_value_info(name, kind, shape)

    layers = [(i, what) for i in range(model.layers) for what in ("key", "value")]
    inputs = [values("input_ids", TensorProto.INT64, ["batch", "sequence"]), values("attention_mask", TensorProto.INT64, ["batch", "total"]),
              *(values(f"past_key_values.{i}.{what}", TensorProto.FLOAT, kv) for i, what in layers)]
    outputs = [values("logits", TensorProto.FLOAT, ["batch", 1, model.number("vocab_size")]),
               *(values(f"present.{i}.{what}", TensorProto.FLOAT, [*kv[:2], "total", kv[3]]) for i, what in layers)]
    return helper.make_graph(graph.nodes, "llama", inputs, outputs, graph.weights)


def settings(model, length, threads):
    return {"model": {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "type": "llama", "vocab_size": model.number("vocab_size"),
                      "context_length": length,
                      "decoder": {"session_options": {"provider_options": [], "intra_op_num_threads": threads, "inter_op_num_threads": 1},
                                  "filename": "model.onnx", "head_size": model.head_dim, "hidden_size": model.number("hidden_size"),
                                  "num_attention_heads": model.heads, "num_hidden_layers": model.layers, "num_key_value_heads": model.kv_heads,
                                  "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask",
                                             "past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"},
                                  "outputs": {"logits": "logits", "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}}},
            "search": {"do_sample": False, "max_length": length, "past_present_share_buffer": False}}


def write(folder, out, kind, length, threads):
    """Makes the folder `out`. CheckpointError if `folder` is not of Llama architecture."""
    model = Checkpoint(folder)
    os.makedirs(out, exist_ok=True)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph_of(model, kind, length), opset_imports=opsets, ir_version=10)
    onnx.save_model(proto, os.path.join(out, "model.onnx"), save_as_external_data=True, location="model.onnx.data", size_threshold=1024)
    with open(os.path.join(out, "genai_config.json"), "w", encoding="utf8") as file:
        json.dump(settings(model, length, threads), file)
