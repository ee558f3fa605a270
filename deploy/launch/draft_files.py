"""What a folder or file of a model is, as far as choosing a draft needs it, from its config.json and the headers of its
weights: an independent model, an EAGLE-3 head or a DFlash drafter. The programs check the rest. Files are untrusted: what cannot
be read is None."""
import dataclasses
import json
import os
import pathlib
import struct
import typing
import zipfile
import zlib

MODEL, EAGLE3, DFLASH = "model", "eagle3", "dflash"
HEADS = (EAGLE3, DFLASH)  # drafts that take hidden states of their target
NAMES = {MODEL: "a draft model", EAGLE3: "an EAGLE-3 head", DFLASH: "a DFlash drafter"}
MOST_CONFIG_BYTES, MOST_HEADER_BYTES = 4 << 20, 64 << 20


@dataclasses.dataclass(frozen=True)
class ModelFiles:
    path: str
    kind: str
    vocab: typing.Optional[int]          # ids; None: not said, as in a GGUF file
    hidden: typing.Optional[int]         # of a target: its hidden size
    layers: typing.Optional[int]         # of a target
    state_inputs: typing.Optional[int]   # of a head: columns of `fc`, the joined states of a token
    state_layers: tuple[int, ...]        # of a head: layers of the target that config.json names
    bytes: int                           # of its weights

    def takes_states(self):
        return self.kind in HEADS


def positive(value):
    return value if type(value) is int and value > 0 else None


def table(value):
    return value if isinstance(value, dict) else {}


def read_config(folder):
    """The object in config.json, or None."""
    try:
        path = pathlib.Path(folder, "config.json")
        if not path.is_file() or path.stat().st_size > MOST_CONFIG_BYTES:
            return None
        config = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) else None


def read_shapes(path):
    """{tensor: shape} of a safetensors file; {} if it cannot be read."""
    try:
        with open(path, "rb") as file:
            size, = struct.unpack("<Q", file.read(8))
            if size > MOST_HEADER_BYTES:
                return {}
            header = json.loads(file.read(size))
    except (OSError, ValueError, RecursionError, struct.error):
        return {}
    return {name: entry.get("shape") for name, entry in table(header).items() if isinstance(entry, dict) and name != "__metadata__"}


def joining_shape(weights):
    """The shape [hidden size of the draft, joined states] of the matrix `fc`, or None: there is none."""
    for path in weights:
        for name, shape in read_shapes(path).items():
            if name.rpartition("fc.weight")[0] in ("", "model.") and name.endswith("fc.weight"):
                if isinstance(shape, list) and len(shape) == 2 and all(positive(size) for size in shape):
                    return shape
    return None


def torch_file_joins(path):
    """Whether a file that torch.save wrote has a matrix `fc`. Only the names in it are looked at; nothing is unpickled."""
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if entry.filename.rpartition("/")[2] == "data.pkl" and entry.file_size <= MOST_HEADER_BYTES:
                    return b"fc.weight" in archive.read(entry)
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error):
        pass
    return False


def kind_of_config(config, joins):
    """joins: whether there is a matrix `fc`."""
    words = [str(word).lower() for word in (config.get("architectures") if isinstance(config.get("architectures"), list) else ())]
    words.append(str(config.get("speculators_model_type", "")).lower())
    if "dflash_config" in config or any("dflash" in word or "dspark" in word for word in words):
        return DFLASH
    if any("eagle3" in word for word in words) or (joins and "draft_vocab_size" in config):
        return EAGLE3
    return MODEL


def named_layers(config):
    for inner, key in (("eagle_config", "eagle_aux_hidden_state_layer_ids"), ("dflash_config", "target_layer_ids")):
        layers = table(config.get(inner)).get(key, config.get(key))
        if isinstance(layers, list) and all(type(layer) is int for layer in layers):
            return tuple(layers)
    return ()


def size_of(path):
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def read_model_files(path):
    """The ModelFiles of a folder with a config.json, or of a GGUF file; None: it is neither."""
    path = str(path)
    if path.endswith(".gguf") and os.path.isfile(path):
        return ModelFiles(path, MODEL, None, None, None, None, (), size_of(path))
    config = read_config(path)
    if config is None:
        return None
    weights = sorted(pathlib.Path(path).glob("*.safetensors"))
    # Of a target this would read headers for nothing.
    suspect = "draft_vocab_size" in config or "dflash_config" in config or kind_of_config(config, False) != MODEL
    shape = joining_shape(weights) if suspect else None
    others = sorted(pathlib.Path(path).glob("*.bin")) if not weights else []
    joins = shape is not None or (suspect and any(map(torch_file_joins, others)))
    sizes = config
    for part in ("text_config", "transformer_layer_config"):
        sizes = {**sizes, **table(config.get(part))}
    return ModelFiles(path, kind_of_config(config, joins), positive(sizes.get("vocab_size")), positive(sizes.get("hidden_size")),
                      positive(sizes.get("num_hidden_layers")), shape[1] if shape else None, named_layers(config),
                      sum(map(size_of, weights or others)))


def misfit(draft, target):
    """Why the sizes of a draft contradict those of its target, or None: they do not, as far as the files say."""
    if draft.vocab and target.vocab and draft.vocab != target.vocab:
        return f"its vocabulary has {draft.vocab} ids, the target's {target.vocab}"
    if draft.takes_states() and draft.state_inputs and target.hidden:
        if draft.state_inputs % target.hidden or (draft.state_layers and draft.state_inputs != len(draft.state_layers) * target.hidden):
            return f"it joins states of {draft.state_inputs} values, and those of the target have {target.hidden} a layer"
    beyond = [layer for layer in draft.state_layers if target.layers and not 0 <= layer <= target.layers]
    if beyond:
        return f"it takes states of layer {beyond[0]}, and the target has {target.layers} layers"
    return None
