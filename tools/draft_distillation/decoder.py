"""The draft in PyTorch: some layers of a Llama target between the target's own embedding and head, or some rows of the head. Names
are those of Hugging Face."""
import math

import numpy
import torch
from torch.nn import functional

from draft_distillation import tensors
from draft_distillation.llama import NORM, config_of, layer_names, shape_of
from draft_distillation.pieces import DataError


class Decoder:
    """`parameters` are trained, [name] in f32; the embedding and the head (often the same) are not, and are in bf16. `places` has the
    row of the head for each id, or -1."""

    def __init__(self, config, folder, layers, device):
        """From a folder; layers: which of its layers follow each other."""
        self.config, self.shape, self.layers, self.device = config, shape_of(config, folder), len(layers), device
        missing = [layer for layer in layers if not 0 <= layer < self.shape["layers"]]
        if missing:
            raise DataError(f"{folder}: has no layer {missing[0]}, only 0 to {self.shape['layers'] - 1}")

        def read(name):
            return torch.from_numpy(tensors.read(folder, name).copy()).to(device)

        self.embedding = read(tensors.EMBEDDING).bfloat16()
        self.head = self.embedding if config.get("tie_word_embeddings") else read(tensors.HEAD).bfloat16()
        self.places, self.kept = torch.arange(len(self.embedding), device=device), None
        if "draft_vocab_size" in config:
            self.name_rows(tensors.head_ids(folder, config))
        self.parameters = {NORM: read(NORM)}
        for place, layer in enumerate(layers):
            for name, part in layer_names(layer).items():
                self.parameters[f"model.layers.{place}.{part}"] = read(name)
        for value in self.parameters.values():
            value.requires_grad_(True)

    def name_rows(self, ids):
        """The head's rows are of these ids, ascending."""
        self.kept = numpy.asarray(ids)
        self.places = torch.full((len(self.embedding),), -1, dtype=torch.long, device=self.device)
        self.places[torch.from_numpy(self.kept).to(self.device)] = torch.arange(len(ids), device=self.device)

    def keep_rows(self, ids):
        """Leaves only these ids, ascending, of a whole head."""
        self.head = self.head[torch.from_numpy(numpy.asarray(ids)).to(self.device)]
        self.name_rows(ids)

    def take(self, trained, head=True):
        """The parameters, and the ids of the head if wanted, of a folder that `save` has written."""
        config = config_of(trained)
        for field, own in (("num_hidden_layers", self.layers), ("vocab_size", self.config["vocab_size"])):
            if config.get(field) != own:
                raise DataError(f"{trained}: {field} is {config.get(field)!r}, expected {own}")
        for name, value in self.parameters.items():
            values = tensors.read(trained, name)
            if values.shape != tuple(value.shape):
                raise DataError(f"{trained}: {name} is {list(values.shape)}, expected {list(value.shape)} by the target's config.json")
            value.data.copy_(torch.from_numpy(values.copy()))
        if head and "draft_vocab_size" in config:
            self.keep_rows(tensors.head_ids(trained, config))

    def take_mean(self, folders):
        """The mean of the parameters of several such folders, and the ids of the first."""
        total = {}
        for place, folder in enumerate(folders):
            self.take(folder, head=place == 0)
            for name, value in self.parameters.items():
                total[name] = total.get(name, 0) + value.data / len(folders)
        for name, value in total.items():
            self.parameters[name].data.copy_(value)

    def size(self):
        return sum(value.numel() for value in self.parameters.values())

    def states(self, ids):
        """[batch, time, hidden] after the last norm, of ids [batch, time]; each sees itself and those before it."""
        batch, length = ids.shape
        shape, dim = self.shape, self.shape["head_dim"]
        half = dim // 2
        angle = (torch.arange(length, device=self.device)[:, None] /
                 shape["theta"] ** (torch.arange(0, dim, 2, device=self.device) / dim))
        cos, sin = torch.cat([angle.cos()] * 2, 1), torch.cat([-angle.sin(), angle.sin()], 1)
        hidden_later = torch.full((length, length), -1e9, device=self.device).triu(1)

        def split(y):
            return y.view(batch, length, -1, dim).transpose(1, 2)

        def rotate(y):
            return (y * cos + torch.cat([y[..., half:], y[..., :half]], -1) * sin).to(y.dtype)

        x = functional.embedding(ids, self.embedding).float()
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}."

            def linear(y, name, prefix=prefix):
                return functional.linear(y, self.parameters[prefix + name + ".weight"])

            y = self._norm(x, prefix + "input_layernorm.weight")
            query, key = (rotate(split(linear(y, f"self_attn.{n}_proj"))) for n in "qk")
            value = split(linear(y, "self_attn.v_proj"))
            key, value = (part.repeat_interleave(shape["heads"] // shape["kv_heads"], 1) for part in (key, value))
            scores = query / math.sqrt(dim) @ key.transpose(-1, -2)
            mixed = functional.softmax(scores + hidden_later.to(scores.dtype), -1) @ value
            x = x + linear(mixed.transpose(1, 2).reshape(batch, length, -1), "self_attn.o_proj")
            y = self._norm(x, prefix + "post_attention_layernorm.weight")
            x = x + linear(functional.silu(linear(y, "mlp.gate_proj")) * linear(y, "mlp.up_proj"), "mlp.down_proj")
        return self._norm(x, NORM)

    def _norm(self, x, name):
        return functional.rms_norm(x.float(), x.shape[-1:], self.parameters[name], self.shape["eps"])

    def logits(self, states, rows=None):
        """Of all rows of the head, or of some."""
        head = self.head if rows is None else self.head[rows]
        if not torch.is_autocast_enabled(self.device.split(":")[0]):
            head = head.float()
        return functional.linear(states.to(head.dtype), head).float()

    def save(self, folder):
        """Writes what was trained, and config.json. draft_folder.py adds what is the target's."""
        content, config = {}, dict(self.config, num_hidden_layers=self.layers, torch_dtype="bfloat16")
        if self.kept is not None:
            content.update(tensors.ids_of_head(self.kept))
            config["draft_vocab_size"] = len(self.kept)
        for name, value in self.parameters.items():
            values = value.detach().cpu().float().numpy()
            content.update(tensors.as_integers(name, values) if values.ndim == 2 else {name: (values.shape, tensors.bf16_bytes(values))})
        tensors.write_trained(folder, config, content)
