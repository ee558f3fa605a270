"""The reference: beam search over a trie with a Llama model in float64, in NumPy, from the definitions. A child that the trie does not have is
no candidate; log-probabilities are those of the whole vocabulary (docs/algorithms.md 3)."""
import numpy

from checkpoint import Checkpoint


class Reference:
    """A model of Llama architecture. One prompt at a time: read() first, then rows of ids that follow it."""

    def __init__(self, folder):
        model = self.model = Checkpoint(folder)
        self.heads, self.kv_heads, self.size = model.heads, model.kv_heads, model.head_dim
        self.epsilon, self.theta = model.number("rms_norm_eps"), model.number("rope_theta", 10000.0)
        self.embedding = model["model.embed_tokens.weight"]
        self.head = model["model.embed_tokens.weight" if model.tied else "lm_head.weight"].astype(numpy.float64)
        self.norm = model["model.norm.weight"]
        parts = ("input_layernorm", "post_attention_layernorm", *(f"self_attn.{part}_proj" for part in "qkvo"),
                 *(f"mlp.{part}_proj" for part in ("gate", "up", "down")))
        self.layers = [{part: model[f"model.layers.{layer}.{part}.weight"].astype(numpy.float64) for part in parts} for layer in range(model.layers)]

    def normed(self, x, gamma):
        return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * gamma

    def rotated(self, x, positions):
        """x: [rows, positions, heads, size]"""
        half = self.size // 2
        angles = positions[:, None] * self.theta ** (-numpy.arange(half) / half)
        cos, sin = numpy.cos(angles)[:, None], numpy.sin(angles)[:, None]
        return numpy.concatenate([x[..., :half] * cos - x[..., half:] * sin, x[..., half:] * cos + x[..., :half] * sin], -1)

    def forward(self, ids, past):
        """(residual stream [rows, tokens, hidden], [(K, V) of each layer]) of ids [rows, tokens]. past: of one row, all rows follow it."""
        rows, tokens = ids.shape
        before = past[0][0].shape[1] if past else 0
        x, kept, positions = self.embedding[ids].astype(numpy.float64), [], before + numpy.arange(tokens)
        hidden = numpy.triu(numpy.full((tokens, tokens), -numpy.inf), 1)
        for number, layer in enumerate(self.layers):
            y = self.normed(x, layer["input_layernorm"])
            q, k, v = ((y @ layer[f"self_attn.{part}_proj"].T).reshape(rows, tokens, -1, self.size) for part in "qkv")
            q, k = self.rotated(q, positions) / numpy.sqrt(self.size), self.rotated(k, positions)
            kept.append((k, v))
            mixed = numpy.empty_like(q)
            for head in range(self.heads):
                shared = head * self.kv_heads // self.heads
                scores = q[:, :, head] @ k[:, :, shared].transpose(0, 2, 1) + hidden
                values = v[:, :, shared]
                if past:
                    old_k, old_v = (part[0, :, shared] for part in past[number])
                    far = (q[:, :, head].reshape(rows * tokens, -1) @ old_k.T).reshape(rows, tokens, before)
                    scores = numpy.concatenate([far, scores], -1)
                scores = numpy.exp(scores - scores.max(-1, keepdims=True))
                scores /= scores.sum(-1, keepdims=True)
                mixed[:, :, head] = scores[..., before:] @ values
                if past:
                    far = scores[..., :before].reshape(rows * tokens, before) @ old_v
                    mixed[:, :, head] += far.reshape(rows, tokens, -1)
            x = x + mixed.reshape(rows, tokens, -1) @ layer["self_attn.o_proj"].T
            y = self.normed(x, layer["post_attention_layernorm"])
            gate = y @ layer["mlp.gate_proj"].T
            x = x + (gate / (1 + numpy.exp(-gate)) * (y @ layer["mlp.up_proj"].T)) @ layer["mlp.down_proj"].T
        return x, kept

    def log_probabilities(self, x):
        """[rows, vocab] of the residual stream of the last position, [rows, hidden]"""
        logits = self.normed(x, self.norm) @ self.head.T
        logits -= logits.max(-1, keepdims=True)
        return logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True))

    def read(self, prompt):
        """The state of a prompt, for search()."""
        x, past = self.forward(numpy.array([prompt]), None)
        return past, self.log_probabilities(x[:, -1])

    def search(self, state, trie, width):
        """([items, length] the best items, best first; [items] their log-probabilities)"""
        past, rows = state
        beams, nodes, scores = numpy.empty((1, 0), numpy.int64), numpy.zeros(1, numpy.int64), numpy.zeros(1)
        for depth in range(trie.length):
            if depth > 0:
                rows = self.log_probabilities(self.forward(beams, past)[0][:, -1])
            parents = numpy.concatenate([numpy.full(len(trie.children(depth, node)), beam) for beam, node in enumerate(nodes)])
            places = numpy.concatenate([numpy.arange(trie.begins[depth][node], trie.begins[depth][node + 1]) for node in nodes])
            tokens = trie.tokens[depth][places]
            sums = scores[parents] + rows[parents, tokens]
            best = numpy.argsort(-sums, kind="stable")[:width]
            beams = numpy.concatenate([beams[parents[best]], tokens[best, None]], 1)
            nodes, scores = places[best], sums[best]
        return beams, scores
