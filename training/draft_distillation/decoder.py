"""The draft in PyTorch: some layers of a Llama target between the target's own embedding and head, or some rows of the head. With all
layers it is the target. Names are those of Hugging Face."""
import math

import numpy
import torch
from torch.nn import functional

from draft_distillation import tensors
from draft_distillation.llama import NORM, config_of, layer_names, shape_of
from draft_distillation.pieces import DataError


class Cache:
    """Keys and values of some lines of text, [lines * key heads, room, head_dim] for each layer; `length` positions of each are filled. The
    first `padded` [lines] of them are no text, and nothing sees them. Positions count from the padding on, since only distances matter."""

    def __init__(self, decoder, padded, room):
        self.padded, self.length, self.heads = padded, 0, decoder.shape["kv_heads"]
        shape = (len(padded) * self.heads, room, decoder.shape["head_dim"])
        self.keys, self.values = ([torch.empty(shape, dtype=decoder.parameters[NORM].dtype, device=padded.device) for _ in range(decoder.layers)] for _ in "kv")

    def part(self, begin, end):
        """That of some lines, which shares the memory."""
        other = object.__new__(Cache)
        other.padded, other.length, other.heads = self.padded[begin:end], self.length, self.heads
        other.keys, other.values = ([part[begin * self.heads:end * self.heads] for part in parts] for parts in (self.keys, self.values))
        return other

    def add(self, layer, key, value):
        """All keys and values of the layer, with these [lines, key heads, new, head_dim] behind those of before."""
        end = self.length + key.shape[2]
        for of, new in ((self.keys, key), (self.values, value)):
            of[layer][:, self.length:end] = new.flatten(0, 1)
        return self.keys[layer][:, :end], self.values[layer][:, :end]

    def unseen(self, new):
        """[lines, new, length + new]: what the next `new` positions do not see. Padding sees itself, or its softmax would be of nothing."""
        end = self.length + new
        at, of = torch.arange(self.length, end, device=self.padded.device)[:, None], torch.arange(end, device=self.padded.device)
        return (of > at) | ((of < self.padded[:, None, None]) & (of != at))


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
            self.name_rows(tensors.draft_vocabulary(folder, config))
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
            self.keep_rows(tensors.draft_vocabulary(trained, config))

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

    def freeze(self, dtype):
        """For one that is only asked: with parameters in the dtype of its products, "bf16" or "f32"."""
        self.parameters = {name: value.detach().to(torch.bfloat16 if dtype == "bf16" else torch.float32) for name, value in self.parameters.items()}
        return self

    def states(self, ids, cache=None):
        """[batch, time, hidden] after the last norm, of ids [batch, time]; each sees itself and those before it. With a cache the ids
        follow what it has, and are added to it."""
        batch, length = ids.shape
        shape, dim, begun = self.shape, self.shape["head_dim"], cache.length if cache else 0
        half = dim // 2
        angle = (torch.arange(begun, begun + length, device=self.device)[:, None] /
                 shape["theta"] ** (torch.arange(0, dim, 2, device=self.device) / dim))
        cos, sin = torch.cat([angle.cos()] * 2, 1), torch.cat([-angle.sin(), angle.sin()], 1)
        unseen = cache.unseen(length) if cache else None

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
            if cache:
                mixed = seen_by(query, *cache.add(layer, key, value), unseen)
            else:
                key, value = (part.repeat_interleave(shape["heads"] // shape["kv_heads"], 1) for part in (key, value))
                mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + linear(mixed.transpose(1, 2).reshape(batch, length, -1), "self_attn.o_proj")
            y = self._norm(x, prefix + "post_attention_layernorm.weight")
            x = x + linear(functional.silu(linear(y, "mlp.gate_proj")) * linear(y, "mlp.up_proj"), "mlp.down_proj")
        if cache:
            cache.length += length
        return self._norm(x, NORM)

    def _norm(self, x, name):
        return functional.rms_norm(x.float(), x.shape[-1:], self.parameters[name].float(), self.shape["eps"])

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


def seen_by(query, keys, values, unseen):
    """Attention [batch, heads, new, head_dim] to what a Cache gives. Heads that share keys are rows of one product, so nothing is copied."""
    batch, heads, new, dim = query.shape
    scores = torch.bmm(query.reshape(len(keys), -1, dim).to(keys.dtype), keys.transpose(1, 2)).view(batch, heads, new, -1)
    weights = (scores / math.sqrt(dim)).masked_fill(unseen[:, None], -math.inf).softmax(-1, torch.float32).to(values.dtype)
    return torch.bmm(weights.view(len(keys), -1, weights.shape[-1]), values).view(batch, heads, new, dim)
