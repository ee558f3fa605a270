"""Rows that differ from epoch to epoch, so that a model of millions of parameters learns the task and not tens of thousands of rows by
heart. For data whose prompts begin with a line "name: item, item, ..." (the columns of a table) and whose completions have values that
the prompt has too. Needs nothing more than Python's own library.

- Items that a completion does not name are left out, and now and then an item of another prompt is added.
- A value of a completion that the rest of the prompt has once is replaced in both by another value, of a like place in another row."""
import bisect
import collections
import random
import re

VARIED_LISTS = 0.7    # share of rows
LEFT_OUT = 0.5        # largest share of the items
ADDED = 0.25          # share of the varied lists that get one item more
SWAPPED_VALUES = 0.4  # share of rows
ENOUGH = 20           # values of a like place


def _kind(value):
    """What values must have in common to replace each other: they are written alike."""
    return "number" if re.fullmatch(r"[\d.,:%$+-]+", value) else "words" if " " in value else "word"


def _value(match):
    """The first group of a match that took part, or all of it; with where it begins and ends."""
    group = next((g for g in range(1, match.re.groups + 1) if match[g]), 0)
    return match[group], match.start(group), match.end(group)


class Variation:
    def __init__(self, rows, pattern):
        """rows: [(prompt, completion)]; pattern: of the values of completions, see data.copied_case."""
        self.rows, self.pattern = rows, re.compile(pattern)
        self.items = sorted({item for prompt, _ in rows for item in _parts(prompt)[1]})
        self.values = collections.defaultdict(list)
        for _, completion in rows:
            for match in self.pattern.finditer(completion):
                value = _value(match)[0]
                self.values[_kind(value)].append(value)
                self.values[self._place(completion, match), _kind(value)].append(value)

    @staticmethod
    def _place(completion, match):
        """The last word before a value."""
        words = completion[:match.start()].split()
        return words[-1] if words else ""

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
        parts, done = [], 0
        for match in self.pattern.finditer(completion):
            value, begin, end = _value(match)
            if len(re.findall(rf"(?<!\w){re.escape(value)}(?!\w)", rest)) != 1 or completion.count(value) != 1:
                continue
            like = self.values[self._place(completion, match), _kind(value)]
            other = source.choice(like if len(like) >= ENOUGH else self.values[_kind(value)])
            rest = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", lambda _, text=other: text, rest)
            parts += [completion[done:begin], other]
            done = end
        return head + feed + rest, "".join(parts) + completion[done:]

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


def _parts(prompt):
    """("name: ", items, the rest from the line feed on); no items if the prompt does not begin so."""
    head, feed, rest = prompt.partition("\n")
    name, colon, items = head.partition(": ")
    return (name + colon, items.split(", ") if colon and feed else [], feed + rest)
