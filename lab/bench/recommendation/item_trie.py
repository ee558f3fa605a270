"""The items of a catalogue as a trie in NumPy arrays, for the peers and the reference. Coppice has its own (coppice-catalogue)."""
import json

import numpy


def read_items(path):
    """[items, length] int64 in ascending order, of the lines of a catalogue. ValueError names the line."""
    rows = []
    with open(path, encoding="utf8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                rows.append(json.loads(line)["tokens"])
                if len(rows[-1]) != len(rows[0]):
                    raise ValueError
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}:{number}: expected an item of {len(rows[0]) if rows else 'its'} tokens") from error
    if not rows:
        raise ValueError(f"{path}: no items")
    return numpy.unique(numpy.array(rows, numpy.int64), axis=0)


class Trie:
    """Nodes of a depth are numbered in ascending order of their prefixes; those of the last depth are the items."""

    def __init__(self, items):
        """items: [items, length] in ascending order, all different."""
        self.length, nodes = items.shape[1], numpy.zeros(len(items), numpy.int64)
        self.tokens, self.begins = [], []  # of each depth: [nodes] the last token; [nodes of the depth before + 1] where children begin
        for depth in range(self.length):
            new = numpy.ones(len(items), bool)
            new[1:] = (items[1:, :depth + 1] != items[:-1, :depth + 1]).any(1)
            self.tokens.append(items[new, depth])
            self.begins.append(numpy.searchsorted(nodes[new], numpy.arange(nodes[-1] + 2)))
            nodes = numpy.cumsum(new) - 1

    def children(self, depth, node):
        """The tokens that may follow a node of this depth, ascending. Depth 0 has one node, the root."""
        return self.tokens[depth][self.begins[depth][node]:self.begins[depth][node + 1]]

    def find(self, prefix):
        """The number of the node with this prefix, -1 if there is none."""
        node = 0
        for depth, token in enumerate(prefix):
            children = self.children(depth, node)
            place = numpy.searchsorted(children, token)
            if place == len(children) or children[place] != token:
                return -1
            node = int(self.begins[depth][node] + place)
        return node

    def legal(self, sequence):
        """Whether this is an item."""
        return len(sequence) == self.length and self.find(sequence) >= 0
