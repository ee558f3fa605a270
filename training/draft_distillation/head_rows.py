"""What all kinds of drafts have in common: the target's embedding and head, or some rows of the head, around trained parameters."""
import numpy
import torch
from torch.nn import functional

from draft_distillation import tensors
from draft_distillation.pieces import DataError


class Step:
    """What a draft says at a draft step: the states of its rows, normed, and of which tokens they are."""

    def __init__(self, states, which=None, before=None, weight=1.0):
        self.states = states  # [rows, hidden]
        self.which = which    # [rows] places among the predicted tokens of a batch; None: all of them
        self.before = before  # [rows] the ids before the predicted ones
        self.weight = weight  # in the loss

    def of(self, values):
        """Those of values [predicted tokens, ...] that are of the rows."""
        return values if self.which is None else values[self.which]


class HeadRows:
    """`parameters` are trained, [name] in f32; `fixed` belongs to them and is not. The embedding and the head (often the same) are the
    target's, in bf16. `places` has the row of the head for each id, or -1."""

    takes_states = False  # whether the target must be at hand
    state_layers = ()     # of the target, whose outputs it takes
    rates = {}            # parameters that AdamW moves, and how fast: a share of the learning rate
    whole_head = False    # whether it can say every id
    draft_steps = 1

    def __init__(self, config, folder, device):
        self.config, self.device, self.parameters, self.fixed = config, device, {}, {}
        self.embedding = self.read(folder, tensors.EMBEDDING).bfloat16()
        self.head = self.embedding if config.get("tie_word_embeddings") else self.read(folder, tensors.HEAD).bfloat16()
        self.places, self.kept = torch.arange(len(self.embedding), device=device), None

    def read(self, folder, name):
        return torch.from_numpy(tensors.read(folder, name).copy()).to(self.device)

    def name_rows(self, ids):
        """The head's rows are of these ids, ascending."""
        self.kept = numpy.asarray(ids)
        self.places = torch.full((len(self.embedding),), -1, dtype=torch.long, device=self.device)
        self.places[torch.from_numpy(self.kept).to(self.device)] = torch.arange(len(ids), device=self.device)

    def keep_rows(self, ids):
        """Leaves only these ids, ascending, of a whole head."""
        self.head = self.head[torch.from_numpy(numpy.asarray(ids)).to(self.device)]
        self.name_rows(ids)

    def logits(self, states, rows=None, before=None):
        """Of all rows of the head, or of some. before: the id before each predicted one, for drafts that ask."""
        head = self.head if rows is None else self.head[rows]
        if not torch.is_autocast_enabled(self.device.split(":")[0]):
            head = head.float()
        return functional.linear(states.to(head.dtype), head).float()

    def copy_from(self, folder, name, value):
        """value takes what the tensor of the folder has."""
        values = tensors.read(folder, name)
        if values.shape != tuple(value.shape):
            raise DataError(f"{folder}: {name} is {list(values.shape)}, expected {list(value.shape)} by the target's config.json")
        value.data.copy_(torch.from_numpy(values.copy()))

    def take_mean(self, folders):
        """The mean of the parameters of several folders, and the ids of the first."""
        total = {}
        for place, folder in enumerate(folders):
            self.take(folder, head=place == 0)
            for name, value in self.parameters.items():
                total[name] = total.get(name, 0) + value.data / len(folders)
        for name, value in total.items():
            self.parameters[name].data.copy_(value)

    def size(self):
        return sum(value.numel() for value in self.parameters.values())

    def norm(self, x, name):
        return functional.rms_norm(x.float(), x.shape[-1:], self.parameters[name].float(), self.shape["eps"])


def split_heads(y, dim):
    """[batch, time, heads * dim] as [batch, heads, time, dim]"""
    return y.view(*y.shape[:2], -1, dim).transpose(1, 2)


def rotated(y, positions, frequencies):
    """y [..., time, dim] after the rotary embedding at positions [..., time]; frequencies: those of llama.shape_of."""
    half = y.shape[-1] // 2
    angle = positions[..., None] * torch.tensor(frequencies, device=y.device)
    cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([-angle.sin(), angle.sin()], -1)
    return (y * cos + torch.cat([y[..., half:], y[..., :half]], -1) * sin).to(y.dtype)
