"""Rows that differ from epoch to epoch, so that a model of millions of parameters learns the task and not tens of thousands of rows by
heart. For data whose prompts begin with a line "name: item, item, ..." (the columns of a table) and whose completions have values that
the prompt has too. Needs nothing more than Python's own library.

- Items that a completion does not name are left out, and now and then an item of another prompt is added.
- A value of a completion that the rest of the prompt has once is replaced in both by another value, of a like place in another row."""
import bisect
import collections
import random
import re

from pair_training.data import value_of

VARIED_LISTS = 0.7    # share of rows
LEFT_OUT = 0.5        # largest share of the items
ADDED = 0.25          # share of the varied lists that get one item more
SWAPPED_VALUES = 0.4  # share of rows
ENOUGH = 20           # values of a like place


def _kind(value):
    """What values must have in common to replace each other: they are written alike."""
    return "number" if re.fullmatch(r"[\d.,:%$+-]+", value) else "words" if " " in value else "word"


class Variation:
    def __init__(self, rows, pattern):
        """rows: [(prompt, completion)]; pattern: of the values of completions, see data.copied_case."""
        self.rows, self.pattern = rows, re.compile(pattern)
        self.items = sorted({item for prompt, _ in rows for item in _parts(prompt)[1]})
        self.values = collections.defaultdict(list)
        for _, completion in rows:
            for value, place, _ in self._values_of(completion):
                self.values[_kind(value)].append(value)
                self.values[place, _kind(value)].append(value)

    def _values_of(self, completion):
        """[(value, the last word before its match, (where it begins, where it ends))]"""
        found = []
        for match in self.pattern.finditer(completion):
            value, *span = value_of(match)
            if value:
                found.append((value, (completion[:match.start()].split() or [""])[-1], span))
        return found

    def epoch(self, seed):
        """The rows of an epoch, in their order."""
        source = random.Random(seed)
        return [self._varied(prompt, completion, source) for prompt, completion in self.rows]

    def _varied(self, prompt, completion, source):
        if source.random() < SWAPPED_VALUES:
            prompt, completion = self._swapped(prompt, completion, source)
        if source.random() < VARIED_LISTS:
            prompt = self._other_list(prompt, completion, source)
        return prompt, completion

    def _swapped(self, prompt, completion, source):
        head, feed, rest = prompt.partition("\n")
        places = {}  # of the values that the rest of the prompt has once: (begin, end) there
        for value, _, _ in self._values_of(completion):
            found = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(value)}(?!\w)", rest)]
            if len(found) == 1:
                places[value] = found[0]
        new = {}
        for value, before, _ in self._values_of(completion):
            place = places.get(value)
            if place and not any(other != value and low < place[1] and place[0] < high for other, (low, high) in places.items()):
                like = self.values[before, _kind(value)]
                new[value] = source.choice(like if len(like) >= ENOUGH else self.values[_kind(value)])
        rest = _replaced(rest, [(*places[value], other) for value, other in new.items()])
        return head + feed + rest, _replaced(completion, [(*span, new[value]) for value, _, span in self._values_of(completion) if value in new])

    def _other_list(self, prompt, completion, source):
        name, items, rest = _parts(prompt)
        if not items:
            return prompt
        share, ordered = LEFT_OUT * source.random(), items == sorted(items)
        kept = [item for item in items if item in completion or source.random() >= share] or items
        if source.random() < ADDED:
            other = source.choice(self.items)
            if other not in items:
                kept.insert(bisect.bisect(kept, other) if ordered else source.randrange(len(kept) + 1), other)
        return name + ", ".join(kept) + rest


def _replaced(text, changes):
    """changes: [(begin, end, what comes there)], which do not overlap."""
    parts, done = [], 0
    for begin, end, new in sorted(changes):
        parts += [text[done:begin], new]
        done = end
    return "".join(parts) + text[done:]


def _parts(prompt):
    """("name: ", items, the rest from the line feed on); no items if the prompt does not begin so."""
    head, feed, rest = prompt.partition("\n")
    name, colon, items = head.partition(": ")
    return (name + colon, items.split(", ") if colon and feed else [], feed + rest)
