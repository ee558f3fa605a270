"""The draft in PyTorch: some layers of a Llama target between the target's own embedding and head, or some rows of the head. With all
layers it is the target. Names are those of Hugging Face."""
import math
import os

import torch
from torch.nn import functional

from draft_distillation import tensors
from draft_distillation.head_rows import HeadRows, Step, rotated, split_heads
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


class Decoder(HeadRows):
    def __init__(self, config, folder, layers, device):
        """From a folder; layers: which of its layers follow each other."""
        self.shape, self.layers = shape_of(config, folder), len(layers)
        missing = [layer for layer in layers if not 0 <= layer < self.shape["layers"]]
        if missing:
            raise DataError(f"{folder}: has no layer {missing[0]}, only 0 to {self.shape['layers'] - 1}")
        super().__init__(config, folder, device)
        if "draft_vocab_size" in config:
            self.name_rows(tensors.draft_vocabulary(folder, config))
        self.parameters = {NORM: self.read(folder, NORM)}
        for place, layer in enumerate(layers):
            for name, part in layer_names(layer, self.shape["qk_norm"]).items():
                self.parameters[f"model.layers.{place}.{part}"] = self.read(folder, name)
        for value in self.parameters.values():
            value.requires_grad_(True)

    def take(self, trained, head=True):
        """The parameters, and the ids of the head if wanted, of a folder that `save` has written."""
        config = config_of(trained)
        for field, own in (("num_hidden_layers", self.layers), ("vocab_size", self.config["vocab_size"])):
            if config.get(field) != own:
                raise DataError(f"{trained}: {field} is {config.get(field)!r}, expected {own}")
        for name, value in self.parameters.items():
            self.copy_from(trained, name, value)
        if head and "draft_vocab_size" in config:
            self.keep_rows(tensors.draft_vocabulary(trained, config))

    def freeze(self, dtype):
        """For one that is only asked: with parameters in the dtype of its products, "bf16" or "f32"."""
        self.parameters = {name: value.detach().to(torch.bfloat16 if dtype == "bf16" else torch.float32) for name, value in self.parameters.items()}
        return self

    def states(self, ids, cache=None):
        """[batch, time, hidden] after the last norm, of ids [batch, time]; each sees itself and those before it. With a cache the ids
        follow what it has, and are added to it."""
        for x in self.residuals(ids, cache):
            pass
        return self.norm(x, NORM)

    def residuals(self, ids, cache=None):
        """Yields the residual stream [batch, time, hidden] in f32 after each layer."""
        shape, dim, begun = self.shape, self.shape["head_dim"], cache.length if cache else 0
        positions = torch.arange(begun, begun + ids.shape[1], device=self.device)
        unseen = cache.unseen(ids.shape[1]) if cache else None
        x = functional.embedding(ids, self.embedding).float()
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}."

            def linear(y, name, prefix=prefix):
                return functional.linear(y, self.parameters[prefix + name + ".weight"])

            y = self.norm(x, prefix + "input_layernorm.weight")
            query, key = (split_heads(linear(y, f"self_attn.{n}_proj"), dim) for n in "qk")
            if shape["qk_norm"]:
                query, key = (self.norm(part, f"{prefix}self_attn.{n}_norm.weight") for part, n in ((query, "q"), (key, "k")))
            query, key = (rotated(part, positions, shape["frequencies"]) for part in (query, key))
            value = split_heads(linear(y, "self_attn.v_proj"), dim)
            if cache:
                mixed = seen_by(query, *cache.add(layer, key, value), unseen)
            else:
                key, value = (part.repeat_interleave(shape["heads"] // shape["kv_heads"], 1) for part in (key, value))
                mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + linear(mixed.transpose(1, 2).flatten(2), "self_attn.o_proj")
            y = self.norm(x, prefix + "post_attention_layernorm.weight")
            x = x + linear(functional.silu(linear(y, "mlp.gate_proj")) * linear(y, "mlp.up_proj"), "mlp.down_proj")
            if cache and layer == self.layers - 1:
                cache.length += ids.shape[1]
            yield x

    def with_states(self, ids, layers):
        """(what `states` gives, the residual streams after these layers side by side [batch, time, layers * hidden]; None without layers)"""
        found = {}
        for layer, x in enumerate(self.residuals(ids)):
            if layer in layers:
                found[layer] = x
        return self.norm(x, NORM), torch.cat([found[layer] for layer in layers], -1) if layers else None

    def steps(self, places, states=None):
        """What it says of the predicted tokens of rows.Places: one step, which takes no states of a target."""
        own = self.states(places.ids)
        return [Step(own.flatten(0, 1)[places.where])]

    def save(self, folder):
        """Writes what was trained, and config.json. draft_folder.py adds what is the target's."""
        content, config = {}, dict(self.config, num_hidden_layers=self.layers, torch_dtype="bfloat16")
        if "layer_types" in config:
            config["layer_types"] = config["layer_types"][:self.layers]
        if self.kept is not None:
            content.update(tensors.ids_of_head(self.kept))
            config["draft_vocab_size"] = len(self.kept)
        for name, value in self.parameters.items():
            values = value.detach().cpu().float().numpy()
            content.update(tensors.as_integers(name, values) if values.ndim == 2 else {name: (values.shape, tensors.bf16_bytes(values))})
        tensors.write_trained(folder, config, content)

    def write(self, out, target):
        """Writes the folder; out/trained has only what was trained."""
        trained = os.path.join(out, "trained")
        self.save(trained)
        tensors.put_together(trained, target, out)


def seen_by(query, keys, values, unseen):
    """Attention [batch, heads, new, head_dim] to what a Cache gives. Heads that share keys are rows of one product, so nothing is copied."""
    batch, heads, new, dim = query.shape
    scores = torch.bmm(query.reshape(len(keys), -1, dim).to(keys.dtype), keys.transpose(1, 2)).view(batch, heads, new, -1)
    weights = (scores / math.sqrt(dim)).masked_fill(unseen[:, None], -math.inf).softmax(-1, torch.float32).to(values.dtype)
    return torch.bmm(weights.view(len(keys), -1, weights.shape[-1]), values).view(batch, heads, new, dim)
