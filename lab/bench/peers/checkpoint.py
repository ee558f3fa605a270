"""A Hugging Face folder of Llama architecture as NumPy arrays. The peers' programs convert it for their engine."""
import json
import pathlib

import numpy

DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class CheckpointError(Exception):
    """Names the folder or file and what is not converted."""


def interleaved(weight, heads):
    """Rows of Q or K with the two halves of each head in turns, as GGUF has them."""
    return numpy.ascontiguousarray(weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape))


def headers(folder):
    """{file: (where its data begins, its header)} of the .safetensors files."""
    found = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with open(file, "rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(size))
        found[file] = 8 + size, {name: entry for name, entry in header.items() if name != "__metadata__"}
    return found


def types_in(folder):
    """The types of its tensors."""
    return {entry["dtype"] for _, header in headers(folder).values() for entry in header.values()}


class Checkpoint:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        try:
            self.config = json.loads((self.folder / "config.json").read_text(encoding="utf8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{self.folder}/config.json: {error}") from error
        if self.config.get("architectures") != ["LlamaForCausalLM"]:
            raise CheckpointError(f"{self.folder}/config.json: architectures {self.config.get('architectures')}, expected LlamaForCausalLM")
        for field in ("rope_scaling", "attention_bias", "mlp_bias"):
            if self.config.get(field):
                raise CheckpointError(f"{self.folder}/config.json: {field} is not converted for the peers")
        self._places = {name: (file, begin + entry["data_offsets"][0], entry["dtype"], tuple(entry["shape"]))
                        for file, (begin, header) in headers(self.folder).items() for name, entry in header.items()}
        if not self._places:
            raise CheckpointError(f"{self.folder}: no .safetensors file")

    def __getitem__(self, name):
        """The tensor as f32. CheckpointError if the files do not have it."""
        if name not in self._places:
            raise CheckpointError(f"{self.folder}: no tensor {name}")
        file, offset, dtype, shape = self._places[name]
        if dtype not in DTYPES:
            raise CheckpointError(f"{file}: {name} is of type {dtype}, expected one of {', '.join(DTYPES)}")
        values = numpy.memmap(file, DTYPES[dtype], "r", offset, shape)
        if dtype == "BF16":
            return (values.astype(numpy.uint32) << 16).view(numpy.float32)
        return values.astype(numpy.float32)

    def number(self, field, otherwise=None):
        value = self.config.get(field)
        if value is None:
            value = (self.config.get("rope_parameters") or {}).get(field, otherwise)
        if value is None:
            raise CheckpointError(f"{self.folder}/config.json: {field} is missing")
        return value

    @property
    def layers(self):
        return self.number("num_hidden_layers")

    @property
    def heads(self):
        return self.number("num_attention_heads")

    @property
    def kv_heads(self):
        return self.number("num_key_value_heads", self.heads)

    @property
    def head_dim(self):
        return self.number("head_dim", self.number("hidden_size") // self.heads)

    @property
    def tied(self):
        return "lm_head.weight" not in self._places
