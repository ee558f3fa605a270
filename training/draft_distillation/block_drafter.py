"""A block drafter in PyTorch: DFlash (arXiv 2602.06036) with DSpark's bias by the token before. A block is a root token and masks; its rows see
each other and the states of the tokens before the root, and one pass predicts all tokens behind the root. Its folder has the layout of z-lab."""
import math

import torch
from torch.nn import functional

from draft_distillation import tensors
from draft_distillation.head_rows import Step, rotated, split_heads
from draft_distillation.llama import NORM, config_of
from draft_distillation.state_draft import DECAY, FUSION, FUSION_RATE, OUT_NORM, StateDraft

ARCHITECTURE = "DFlashDraftModel"
STATE_NORM = "hidden_norm.weight"
BEFORE, AFTER = (f"markov_head.markov_w{number}.weight" for number in (1, 2))
TABLE_RATE = 0.2  # of the learning rate: rows of a table are seldom met
MEASURED = 256    # blocks of a line that are computed at a time without gradients


class BlockDrafter(StateDraft):
    whole_head = True
    rates = {FUSION: FUSION_RATE, BEFORE: TABLE_RATE, AFTER: TABLE_RATE}

    def __init__(self, config, folder, layers, state_layers, device, draft_steps=4, rank=256, roots=512):
        """Begins with layers of the target. rank: columns of the bias; 0: none. roots: blocks of a batch that learn."""
        super().__init__(config, folder, layers, state_layers, device, draft_steps)
        self.layers, self.rank, self.roots = len(layers), rank, roots
        parameters = {STATE_NORM: torch.ones(self.hidden, device=device)}
        for place, layer in enumerate(layers):
            parameters |= {f"layers.{place}.{name}": value for name, value in self.layer_of(folder, layer).items()}
            for name in "qk":
                parameters.setdefault(f"layers.{place}.self_attn.{name}_norm.weight", torch.ones(self.shape["head_dim"], device=device))
        parameters[OUT_NORM] = self.read(folder, NORM)
        if rank:
            random, vocab = torch.Generator().manual_seed(0), len(self.embedding)
            parameters[BEFORE] = torch.randn(vocab, rank, generator=random).to(device)
            parameters[AFTER] = torch.zeros(vocab, rank, device=device)
        self.train_all(parameters)
        self.fixed["mask"] = torch.tensor(0, device=device)

    def start(self, frequent):
        """The mask is the id that the target says least."""
        seldom = torch.ones(len(self.embedding), dtype=torch.bool)
        seldom[torch.from_numpy(frequent(len(seldom) - 1))] = False
        self.fixed["mask"] = seldom.nonzero().view(()).to(self.device)

    def take(self, folder, head=True):
        """The parameters of a folder in the published layout."""
        config = config_of(folder)
        own = config.get("dflash_config", {})
        self.check_folder(folder, {"architectures": (config.get("architectures"), [ARCHITECTURE]), "num_hidden_layers":
                                   (config.get("num_hidden_layers"), self.layers), "target_layer_ids": (own.get("target_layer_ids"), self.state_layers),
                                   "markov_rank": (config.get("markov_rank", 0), self.rank)})
        self.take_parameters(folder)
        self.fixed["mask"] = torch.tensor(own["mask_token_id"], device=self.device)

    def write(self, out, target):
        """Writes the folder. Embedding and head are the target's."""
        config = self.own_config(
            architectures=[ARCHITECTURE], model_type="qwen3", num_hidden_layers=self.layers, num_target_layers=self.shape["layers"],
            block_size=self.draft_steps + 1, markov_rank=self.rank, tie_word_embeddings=self.config.get("tie_word_embeddings", False),
            layer_types=["full_attention"] * self.layers, use_sliding_window=False,
            dflash_config={"mask_token_id": int(self.fixed["mask"]), "target_layer_ids": self.state_layers})
        tensors.write_model(out, config, self.content(), target)

    # ---- computation

    def logits(self, states, rows=None, before=None):
        logits = super().logits(states, rows)
        if not self.rank:
            return logits
        after = self.parameters[AFTER] if rows is None else self.parameters[AFTER][rows]
        return logits + functional.linear(functional.embedding(before, self.parameters[BEFORE]), after).float()

    def steps(self, places, states):
        """What it says of the predicted tokens of rows.Places: at draft step s by the block whose root is s tokens before the predicted one.
        With gradients only some blocks are computed, drawn at random."""
        numbers = torch.full_like(places.ids, -1)
        numbers.view(-1)[places.where] = torch.arange(len(places.where), device=places.ids.device)
        is_root = numbers >= 0
        most = int(is_root.sum(1).max())
        context = self.norm(self.joined(states), STATE_NORM)
        order = (is_root + torch.rand(is_root.shape, device=is_root.device)).argsort(1, descending=True)[:, :most]
        if torch.is_grad_enabled():
            parts = [order[:, :max(1, self.roots // len(order))]]
        else:
            parts = order.split(MEASURED, 1)
        found = [[] for _ in range(self.draft_steps)]
        for roots in parts:
            self.add_steps(places.ids, numbers, roots, self.blocks(places.ids, context, roots), found)
        return [Step(*(torch.cat(part) for part in zip(*of_step)), DECAY ** step) for step, of_step in enumerate(found)]

    def add_steps(self, ids, numbers, roots, out, found):
        """out [lines, roots, block, hidden]. Adds (states, which, before) to found for each draft step."""
        for step in range(self.draft_steps):
            at = roots + step  # the token before the predicted one
            inside = at < ids.shape[1]
            at = at.clamp(max=ids.shape[1] - 1)
            which = numbers.gather(1, at)
            kept = inside & (which >= 0) & (numbers.gather(1, roots) >= 0)
            found[step].append((out[:, :, step + 1][kept], which[kept], ids.gather(1, at)[kept]))

    def blocks(self, ids, context, roots):
        """[lines, roots, block, hidden] after the last norm. context [lines, time, hidden]: the joined states, of which a block sees those before
        its root [lines, roots]."""
        lines, count, size, dim = *roots.shape, self.draft_steps + 1, self.shape["head_dim"]
        tokens = self.fixed["mask"].repeat(lines, count, size)
        tokens[:, :, 0] = ids.gather(1, roots)
        x = functional.embedding(tokens, self.embedding).float().flatten(1, 2)
        at = (roots[:, :, None] + torch.arange(size, device=ids.device)).flatten(1)[:, None]  # [lines, 1, rows]
        of_context = torch.arange(ids.shape[1], device=ids.device)
        hidden = (of_context >= roots[:, :, None]).repeat_interleave(size, 1)[:, None]        # [lines, 1, rows, time]
        for layer in range(self.layers):
            prefix = f"layers.{layer}."

            def heads_of(y, name, prefix=prefix):
                return split_heads(self.linear(y, f"{prefix}self_attn.{name}_proj.weight"), dim)

            def normed(y, name, positions, prefix=prefix):
                return rotated(self.norm(heads_of(y, name), f"{prefix}self_attn.{name}_norm.weight"), positions, self.shape["frequencies"])

            y = self.norm(x, prefix + "input_layernorm.weight")
            query, key, value = normed(y, "q", at), self.spread(normed(y, "k", at)), self.spread(heads_of(y, "v"))
            seen = self.spread(normed(context, "k", of_context)), self.spread(heads_of(context, "v"))
            query, key, value = (part.unflatten(2, (count, size)) for part in (query, key, value.float()))
            scores = torch.cat([(query.flatten(2, 3) @ seen[0].transpose(2, 3)).masked_fill(hidden, -math.inf),
                                (query @ key.transpose(3, 4)).flatten(2, 3)], -1).float()
            weights = (scores / math.sqrt(dim)).softmax(-1)
            mixed = weights[..., :-size] @ seen[1].float()
            mixed = mixed + (weights[..., -size:].unflatten(2, (count, size)) @ value).flatten(2, 3)
            x = x + self.linear(mixed.transpose(1, 2).flatten(2), prefix + "self_attn.o_proj.weight")
            x = x + self.mlp(self.norm(x, prefix + "post_attention_layernorm.weight"), prefix)
        return self.norm(x, OUT_NORM).unflatten(1, (count, size))
