"""The layers of a target whose outputs drafts take that name none, as their publishers have chosen them. Layers count from 0."""


def eagle3_layers(count):
    """Of a target with so many layers; the three before the last of a small one."""
    published = [1, count // 2 - 1, count - 4]
    return published if published == sorted(set(published)) else sorted({max(0, count - back) for back in (4, 3, 2)})


def dflash_layers(count, taken=5):
    """Evenly from the second layer to the third last of a target with so many."""
    last = max(0, count - 2)
    return sorted({min(last, round(1 + i * max(0, count - 4) / (taken - 1))) for i in range(taken)})
