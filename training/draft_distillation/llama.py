"""Names of a Llama's or Qwen3's tensors, and what of its config.json the computation needs."""
import json
import math
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


def shape_of(config, folder, kinds=("llama", "qwen3")):
    """What of a config.json the computation needs. DataError if it is none of these kinds, or not a plain one."""
    def refuse(reason):
        raise DataError(f"{os.path.join(folder, 'config.json')}: {reason}")

    if config.get("model_type") not in kinds:
        refuse(f"model_type is {config.get('model_type')!r}, expected {' or '.join(map(repr, kinds))}")
    for field in ("attention_bias", "mlp_bias", "use_sliding_window"):
        if config.get(field):
            refuse(f"{field} is {config[field]!r}, which this tool does not serve")
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    return {"heads": heads, "kv_heads": config.get("num_key_value_heads", heads), "head_dim": dim, "eps": config["rms_norm_eps"],
            "theta": config.get("rope_theta", 10000.0), "frequencies": rope_frequencies(config, dim, refuse),
            "layers": config["num_hidden_layers"], "qk_norm": config["model_type"] == "qwen3"}


def rope_frequencies(config, dim, refuse):
    """[dim / 2] radians from one position to the next. Scaled as Transformers scales them: linear, or llama3."""
    scaling = config.get("rope_scaling") or {}
    plain = [config.get("rope_theta", 10000.0) ** (-i / dim) for i in range(0, dim, 2)]
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return plain
    try:
        if kind == "linear":
            return [frequency / scaling["factor"] for frequency in plain]
        if kind != "llama3":
            refuse(f"rope_scaling of type {kind!r} is not served by this tool, expected 'linear' or 'llama3'")
        factor, low, high, first = (float(scaling[name]) for name in
                                    ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"))
    except KeyError as error:
        refuse(f"rope_scaling has no {error.args[0]}")
    scaled = []
    for frequency in plain:
        turns = first * frequency / (2 * math.pi)  # in the context of the first training
        kept = min(1.0, max(0.0, (turns - low) / (high - low)))
        scaled.append(frequency * (kept + (1 - kept) / factor))
    return scaled


def layer_names(layer, qk_norm=False):
    """{name: name within the layer} of its tensors"""
    prefix = f"model.layers.{layer}."
    names = ["input_layernorm", "post_attention_layernorm", *(f"self_attn.{part}_proj" for part in "qkvo"),
             *(f"mlp.{part}_proj" for part in ("gate", "up", "down"))]
    if qk_norm:
        names += ["self_attn.q_norm", "self_attn.k_norm"]
    return {f"{prefix}{name}.weight": f"{name}.weight" for name in names}
