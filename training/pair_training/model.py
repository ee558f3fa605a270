"""The decoder of llama_folder in PyTorch, its parameters under their names in the file."""
import math

import llama_folder
import torch
from draft_distillation import tensors
from torch.nn import functional

from pair_training import tokenizer
from pair_training.data import DataError
from pair_training.shape import shape_of


class Llama:
    """RMSNorm, RoPE (half split), SwiGLU, a tied head. The shape has the arguments of llama_folder.config."""

    def __init__(self, shape, device):
        self.shape, self.device = shape, device
        sizes = {key: value for key, value in shape.items() if key not in ("context", "theta")}
        self.parameters = {name: torch.ones(dims, device=device, requires_grad=True) for name, dims in
                           llama_folder.tensor_shapes(**sizes).items()}
        dim = shape["hidden"] // shape["heads"]
        angle = (torch.arange(shape["context"], device=device)[:, None] /
                 shape["theta"] ** (torch.arange(0, dim, 2, device=device) / dim))
        self.cos, self.sin = torch.cat([angle.cos()] * 2, 1), torch.cat([-angle.sin(), angle.sin()], 1)

    def initialise(self, seed):
        torch.manual_seed(seed)
        for name, value in self.parameters.items():
            if value.dim() < 2:
                continue
            std = 0.02 if "embed_tokens" in name else 1 / math.sqrt(value.shape[1])
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                std /= math.sqrt(2 * self.shape["layers"])
            value.data.normal_(0, std)

    def size(self):
        return sum(value.numel() for value in self.parameters.values())

    def freeze(self, layers):
        """The embedding, which is the head too, and so many of the first layers stay as they are."""
        for name, value in self.parameters.items():
            value.requires_grad = not name.startswith(("model.embed_tokens.", *(f"model.layers.{layer}." for layer in range(layers))))

    def trained(self):
        return [value for value in self.parameters.values() if value.requires_grad]

    def matrices(self):
        """The matrices of the layers that are trained."""
        return [value for name, value in self.parameters.items() if value.dim() == 2 and "embed_tokens" not in name and value.requires_grad]

    def hidden(self, ids, positions, allowed):
        """[batch, time, hidden] of ids [batch, time]. allowed [batch, time, time]: who sees whom."""
        batch, length = ids.shape
        half = self.shape["hidden"] // self.shape["heads"] // 2
        groups = self.shape["heads"] // self.shape["kv_heads"]
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)  # [batch, 1, time, dim]
        bias = torch.zeros(allowed.shape, device=self.device).masked_fill_(~allowed, -1e9).unsqueeze(1)

        def split(y):
            return y.view(batch, length, -1, 2 * half).transpose(1, 2)

        def rotate(y):
            return (y * cos + torch.cat([y[..., half:], y[..., :half]], -1) * sin).to(y.dtype)

        x = functional.embedding(ids, self.parameters["model.embed_tokens.weight"])
        for layer in range(self.shape["layers"]):
            prefix = f"model.layers.{layer}."

            def linear(y, name, prefix=prefix):
                return functional.linear(y, self.parameters[prefix + name + ".weight"])

            y = self._norm(x, prefix + "input_layernorm.weight")
            query, key = (rotate(split(linear(y, f"self_attn.{n}_proj"))) for n in "qk")
            value = split(linear(y, "self_attn.v_proj"))
            if groups > 1:
                key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
            # The backward pass of PyTorch's fused attention takes three times as long on a CPU when there is a mask.
            scores = query / math.sqrt(2 * half) @ key.transpose(-1, -2)
            mixed = functional.softmax(scores + bias.to(scores.dtype), -1) @ value
            x = x + linear(mixed.transpose(1, 2).reshape(batch, length, -1), "self_attn.o_proj")
            y = self._norm(x, prefix + "post_attention_layernorm.weight")
            x = x + linear(functional.silu(linear(y, "mlp.gate_proj")) * linear(y, "mlp.up_proj"), "mlp.down_proj")
        return self._norm(x, "model.norm.weight")

    def _norm(self, x, name):
        return functional.rms_norm(x.float(), x.shape[-1:], self.parameters[name], 1e-5)

    def head(self, states):
        return functional.linear(states, self.parameters["model.embed_tokens.weight"]).float()

    def save(self, folder, tokenizer_file, dtype):
        """Writes the folder; each of its files is replaced as a whole."""
        content = {}
        for name, value in self.parameters.items():
            values = value.detach().cpu().float().numpy()
            if dtype == "int8" and values.ndim == 2:
                content.update(tensors.as_integers(name, values))
            else:
                content[name] = (values.shape, values.tobytes() if dtype == "f32" else tensors.bf16_bytes(values))
        config = llama_folder.config(**self.shape, torch_dtype="float32" if dtype == "f32" else "bfloat16")
        llama_folder.write_folder(folder, config, content, "F32" if dtype == "f32" else "BF16")
        tokenizer.copy(tokenizer_file, folder)


def load(folder, device):
    """The model of a folder that `save` has written."""
    model = Llama(shape_of(folder), device)
    for name, value in model.parameters.items():
        values = tensors.read(folder, name)
        if values.shape != tuple(value.shape):
            raise DataError(f"{folder}: {name} is {list(values.shape)}, expected {list(value.shape)} by config.json")
        value.data.copy_(torch.from_numpy(values.copy()))
    return model
