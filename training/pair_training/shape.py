"""The shape of the model of a folder, as llama_folder.config takes it."""
import os

from draft_distillation import llama

from pair_training.data import DataError


def shape_of(folder):
    """DataError if its config.json is not of a Llama as train_pair.py writes them."""
    config = llama.config_of(folder)
    try:
        shape = llama.shape_of(config, folder, ("llama",))
        if config.get("rope_scaling"):
            raise DataError(f"{os.path.join(folder, 'config.json')}: has rope_scaling, which this tool does not serve")
        if not config.get("tie_word_embeddings") or shape["eps"] != 1e-5 or shape["head_dim"] * shape["heads"] != config["hidden_size"]:
            raise DataError(f"{os.path.join(folder, 'config.json')}: expected a tied head, rms_norm_eps 1e-5 and heads that fill hidden_size")
        return dict(hidden=config["hidden_size"], ffn=config["intermediate_size"], vocab=config["vocab_size"],
                    context=config["max_position_embeddings"], **{name: shape[name] for name in ("layers", "heads", "kv_heads", "theta")})
    except KeyError as error:
        raise DataError(f"{os.path.join(folder, 'config.json')}: has no {error}") from error
