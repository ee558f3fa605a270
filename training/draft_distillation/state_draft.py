"""What drafts over hidden states of the target have in common: the matrix that joins the states, and folders in a published layout."""
import torch
from torch.nn import functional

from draft_distillation import tensors
from draft_distillation.head_rows import HeadRows
from draft_distillation.llama import config_of, layer_names, shape_of
from draft_distillation.pieces import DataError

FUSION, OUT_NORM = "fc.weight", "norm.weight"
RESIDUAL = 2.0       # root mean square of the joined states at the start
FUSION_RATE = 0.05   # of the learning rate: a linear map would lose what it begins with
DECAY = 0.8          # of the loss from one draft step to the next, as in the authors' training of EAGLE-3
COPIED = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", "rms_norm_eps", "hidden_act", "bos_token_id", "eos_token_id",
          "max_position_embeddings", "rope_scaling")


class StateDraft(HeadRows):
    """`fixed` has the scale of each column of the states, by which they are alike in size when it learns; in the folder it is a part of fc."""

    takes_states = True
    rates = {FUSION: FUSION_RATE}

    def __init__(self, config, folder, layers, state_layers, device, draft_steps):
        self.shape, self.state_layers, self.draft_steps = shape_of(config, folder), list(state_layers), draft_steps
        last = self.shape["layers"] - 1
        for number in layers:
            if not 0 <= number <= last:
                raise DataError(f"{folder}: has no layer {number}, only 0 to {last}")
        for number in state_layers:
            if not 0 <= number < last:
                raise DataError(f"{folder}: the output of layer {number} is asked for, expected 0 to {last - 1}: it has {last + 1} layers, and states of the "
                                "last are not kept")
        super().__init__(config, folder, device)
        self.hidden = self.embedding.shape[1]
        fusion = torch.zeros(self.hidden, len(state_layers) * self.hidden, device=device)
        fusion[:, -self.hidden:] = RESIDUAL * torch.eye(self.hidden, device=device)
        self.parameters = {FUSION: fusion}
        self.fixed = {"scale": torch.ones(len(state_layers) * self.hidden, device=device)}

    def layer_of(self, folder, layer):
        """{name: tensor} of a layer of the target"""
        return {name: self.read(folder, full) for full, name in layer_names(layer, self.shape["qk_norm"]).items()}

    def train_all(self, parameters):
        """These are trained too."""
        self.parameters |= parameters
        for value in self.parameters.values():
            value.requires_grad_(True)

    def scale_states(self, states):
        """Chooses the scales by states [rows, columns] of the target, before anything is taken from a folder: by the median row, since the states of
        a few tokens, often the first, are a hundred times as large."""
        size = states.view(len(states), len(self.state_layers), -1).square().mean(2).sqrt().median(0).values
        self.fixed["scale"] = (1 / size).repeat_interleave(self.hidden)

    def start(self, frequent):
        """What a new draft must know of the data. frequent: a function that gives so many of the most frequent ids."""

    def joined(self, states):
        return self.linear(states * self.fixed["scale"], FUSION)

    def linear(self, y, name):
        return functional.linear(y, self.parameters[name])

    def mlp(self, y, prefix):
        inner = functional.silu(self.linear(y, prefix + "mlp.gate_proj.weight")) * self.linear(y, prefix + "mlp.up_proj.weight")
        return self.linear(inner, prefix + "mlp.down_proj.weight")

    def spread(self, keys):
        """Keys or values [..., key heads, rows, head_dim] for each of the heads."""
        return keys.repeat_interleave(self.shape["heads"] // self.shape["kv_heads"], -3)

    # ---- folders

    def check_folder(self, folder, wanted):
        """wanted: {field: (found, expected)} beside those that all have."""
        config = config_of(folder)
        wanted = wanted | {name: (config.get(name), self.config[name]) for name in ("hidden_size", "vocab_size")}
        for field, (found, expected) in wanted.items():
            if found != expected:
                raise DataError(f"{folder}: {field} is {found!r}, expected {expected!r}")

    def take_parameters(self, folder):
        for name, value in self.parameters.items():
            self.copy_from(folder, name, value)
        self.parameters[FUSION].data.div_(self.fixed["scale"])

    def own_config(self, **fields):
        config = {name: self.config[name] for name in COPIED if name in self.config}
        config.update(num_key_value_heads=self.shape["kv_heads"], head_dim=self.shape["head_dim"], rope_theta=self.shape["theta"],
                      attention_bias=False, torch_dtype="bfloat16")
        return config | fields

    def content(self):
        """The trained tensors for tensors.write_model."""
        found = {}
        for name, value in self.parameters.items():
            values = value.detach() * self.fixed["scale"] if name == FUSION else value.detach()
            found[name] = (tuple(values.shape), tensors.bf16_bytes(values.float().cpu().numpy()))
        return found
