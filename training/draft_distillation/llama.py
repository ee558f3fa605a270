"""Names of a Llama's tensors, and what of its config.json the computation needs."""
import json
import os

from tool_arguments import DataError

NORM = "model.norm.weight"


def config_of(folder):
    """The content of its config.json."""
    path = os.path.join(folder, "config.json")
    try:
        with open(path, encoding="utf8") as file:
            config = json.load(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(config, dict):
        raise DataError(f"{path}: expected an object")
    return config


def shape_of(config, folder):
    """What of a config.json the computation needs. DataError if it is no plain Llama."""
    def refuse(reason):
        raise DataError(f"{os.path.join(folder, 'config.json')}: {reason}")

    if config.get("model_type") != "llama":
        refuse(f"model_type is {config.get('model_type')!r}, expected 'llama'")
    rope = config.get("rope_scaling")
    if rope or config.get("attention_bias") or config.get("mlp_bias"):
        refuse("rope_scaling and biases are not served by this tool")
    heads = config["num_attention_heads"]
    return {"heads": heads, "kv_heads": config.get("num_key_value_heads", heads),
            "head_dim": config.get("head_dim") or config["hidden_size"] // heads, "eps": config["rms_norm_eps"],
            "theta": config.get("rope_theta", 10000.0), "layers": config["num_hidden_layers"]}


def layer_names(layer):
    prefix = f"model.layers.{layer}."
    return {prefix + name: name for name in (
        "input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.q_proj.weight", "self_attn.k_proj.weight",
        "self_attn.v_proj.weight", "self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight")}
