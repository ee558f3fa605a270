"""An EAGLE-3 head in PyTorch (Li and others, 2025, arXiv 2503.01840): one layer over hidden states of the target and the embedding of the
next token. Its folder has the layout of SpecForge, as published heads have."""
import math

import torch
from torch.nn import functional

from draft_distillation import tensors
from draft_distillation.head_rows import Step, rotated, split_heads
from draft_distillation.llama import NORM, config_of
from draft_distillation.state_layers import eagle3_layers
from draft_distillation.state_draft import DECAY, FUSION, OUT_NORM, RESIDUAL, StateDraft

ARCHITECTURE = "LlamaForCausalLMEagle3"
LAYER = "midlayer."
RIDGE = 0.01       # of least squares, for each row
UNUSUAL = 100.0    # mean square of scaled states from which a row is left out of it, often that of a first token
SELF_SCORE = 8.0   # of a row's own key at the start
STATE_LAYERS = "eagle_aux_hidden_state_layer_ids"


def state_layers_in(config, count):
    """Those of a head's config.json; count: layers of its target."""
    return config.get("eagle_config", {}).get(STATE_LAYERS) or eagle3_layers(count)


class EagleHead(StateDraft):
    def __init__(self, config, folder, layer, state_layers, device, draft_steps=4):
        """Begins as a layer of the target that sees the last of the states; what it takes of embeddings begins at random."""
        super().__init__(config, folder, [layer], state_layers, device, draft_steps)
        random = torch.Generator().manual_seed(0)
        own = {name: value for name, value in self.layer_of(folder, layer).items() if not name.endswith(("q_norm.weight", "k_norm.weight"))}
        parameters = {LAYER + "hidden_norm.weight": own["input_layernorm.weight"].clone()}
        own["input_layernorm.weight"] = torch.ones(self.hidden, device=device)
        for name, value in own.items():
            if name.split(".")[1] in ("q_proj", "k_proj", "v_proj"):
                value = torch.cat([torch.randn(value.shape, generator=random).to(device) * value.std(), value], 1)
            parameters[LAYER + name] = value
        self.train_all(parameters | {OUT_NORM: self.read(folder, NORM)})

    def start(self, states, ids, last, frequent):
        """Least squares: fc and the way of the embedding through the attention give the target's state behind the token, as far as a linear map can.
        Queries are keys, so that a row sees itself and rows of the same token; the MLP adds nothing yet."""
        hidden, dim = self.hidden, self.shape["head_dim"]
        embedded = self.norm(functional.embedding(ids, self.embedding), LAYER + "input_layernorm.weight").detach()
        scaled = states * self.fixed["scale"]
        usual = scaled.square().mean(1) < UNUSUAL
        given = torch.cat([scaled, embedded], 1)[usual]
        wanted = RESIDUAL * functional.rms_norm(last[usual].float(), (hidden,))
        gram = given.T @ given
        gram.diagonal().add_(RIDGE * len(given) + given.shape[1])
        solved = torch.linalg.solve(gram, given.T @ wanted).T  # [hidden, columns + hidden]
        left, size, right = torch.linalg.svd(solved[:, -hidden:])
        values = {name: self.parameters[f"{LAYER}{name}.weight"].data for name in (*(f"self_attn.{part}_proj" for part in "qkvo"), "mlp.down_proj")}
        for value in values.values():
            value.zero_()
        self.parameters[FUSION].data.copy_(solved[:, :-hidden])
        random, shared = torch.Generator().manual_seed(0), self.shape["heads"] // self.shape["kv_heads"]
        drawn = torch.randn(values["self_attn.k_proj"].shape[0], hidden, generator=random).to(self.device) * (SELF_SCORE / dim ** 0.5 / hidden) ** 0.5
        values["self_attn.k_proj"][:, :hidden] = drawn
        values["self_attn.q_proj"][:, :hidden] = drawn.view(-1, dim, hidden).repeat_interleave(shared, 0).flatten(0, 1)
        for place in range(min(len(drawn), hidden)):  # a column of the values each, which the first head of those that share it passes on
            root, column = size[place] ** 0.5, place // dim * shared * dim + place % dim
            values["self_attn.v_proj"][place, :hidden] = right[place] * root
            values["self_attn.o_proj"][:, column] = left[:, place] * root

    def take(self, folder, head=True):
        """The parameters, and the head's rows if wanted, of a folder in the published layout."""
        config = config_of(folder)
        self.check_folder(folder, {"architectures": (config.get("architectures"), [ARCHITECTURE]),
                                   STATE_LAYERS: (state_layers_in(config, self.shape["layers"]), self.state_layers)})
        self.take_parameters(folder)
        if head:
            if config.get("draft_vocab_size", config["vocab_size"]) < config["vocab_size"]:
                self.name_rows(tensors.draft_vocabulary(folder, config))
            self.head = self.read(folder, tensors.HEAD).bfloat16()

    def write(self, out, target):
        """Writes the folder. Embeddings are the target's; its tokenizer is copied, by which drafts keep to the format of an output."""
        config = self.own_config(
            architectures=[ARCHITECTURE], model_type="llama", num_hidden_layers=1, draft_vocab_size=len(self.head), target_hidden_size=self.hidden,
            tie_word_embeddings=False, mlp_bias=False, eagle_config={STATE_LAYERS: self.state_layers, "use_aux_hidden_state": True})
        content = self.content()
        content[tensors.HEAD] = (tuple(self.head.shape), tensors.bf16_bytes(self.head.float().cpu().numpy()))
        if self.kept is not None:
            content.update(tensors.ids_of_head(self.kept, len(self.embedding)))
        tensors.write_model(out, config, content, target)

    # ---- computation

    def steps(self, places, states):
        """What it says of the predicted tokens of rows.Places at each draft step (training-time test): first with states [lines, time, columns]
        of the target, then with its own, of rows that were computed a step before. Row i has the state of token i and the embedding of token
        i + 1; the token behind is predicted. At a step a row sees the rows with true states up to that where its chain begins, and the
        chain: one row of each step."""
        x = self.joined(states[:, :-1])
        embedded = self.norm(functional.embedding(places.ids[:, 1:], self.embedding), LAYER + "input_layernorm.weight")
        line, time = places.where // places.ids.shape[1], places.where % places.ids.shape[1]
        keys, values, said = [], [], []
        for step in range(self.draft_steps):
            x = self.layer(embedded, x, keys, values)
            which = (time > step).nonzero().view(-1)  # a chain begins with row 0 at the earliest
            own = self.norm(x[line[which], time[which] - 1], OUT_NORM)
            said.append(Step(own, which, None, DECAY ** step))
            x = later(x, 1, 1)
        return said

    def layer(self, embedded, x, keys, values):
        """The layer, whose keys and values [lines, heads, rows, head_dim] are added to those of the steps before."""
        def heads_of(name):
            return split_heads(self.linear(both, f"{LAYER}self_attn.{name}_proj.weight"), self.shape["head_dim"])

        both = torch.cat([embedded, self.norm(x, LAYER + "hidden_norm.weight")], -1)
        positions = torch.arange(x.shape[1], device=x.device)
        query, key = (rotated(heads_of(name), positions, self.shape["frequencies"]) for name in "qk")
        for kept, new in ((keys, key), (values, heads_of("v"))):
            kept.append(self.spread(new))
        mixed = functional.scaled_dot_product_attention(query, keys[0], values[0], is_causal=True) if len(keys) == 1 else \
            seen_in_chains(query, keys, values)
        x = x + self.linear(mixed.transpose(1, 2).flatten(2), LAYER + "self_attn.o_proj.weight")
        return x + self.mlp(self.norm(x, LAYER + "post_attention_layernorm.weight"), LAYER)


def later(values, count, axis):
    """values, each moved so many places on along the axis; the first are zeros."""
    if count == 0:
        return values
    kept = values.narrow(axis, 0, max(0, values.shape[axis] - count))
    none = torch.zeros_like(values.narrow(axis, 0, min(count, values.shape[axis])))
    return torch.cat([none, kept], axis)


def seen_in_chains(query, keys, values):
    """Attention of the rows of the last step [lines, heads, rows, head_dim]: row i of step k sees rows 0 to i - k of step 0 and row i - k + m of
    each later step m."""
    last, rows = len(keys) - 1, query.shape[2]
    at = torch.arange(rows, device=query.device)
    hidden = at[None] > at[:, None] - last
    scores = (query @ keys[0].transpose(2, 3)).float().masked_fill(hidden, -math.inf)
    own = [(query * later(keys[m], last - m, 2)).sum(-1, keepdim=True).float() for m in range(1, last + 1)]
    weights = (torch.cat([scores, *own], -1) / math.sqrt(query.shape[-1])).softmax(-1).to(values[0].dtype)
    mixed = weights[..., :rows] @ values[0]
    for m in range(1, last + 1):
        mixed = mixed + weights[..., rows + m - 1:rows + m] * later(values[m], last - m, 2)
    return mixed
