"""Rows of JSON lines, and packs of rows for training. Nothing here needs more than Python's own library."""
import collections
import json
import random
import re

from tool_arguments import DataError

BOS, EOS = 1, 2

# Ids of a row without its first line; its completion is tokens first, first + 1, ... of all completions.
Row = collections.namedtuple("Row", "prompt completion first")
# Rows with the same first line, whose ids are the prefix. The prefix is computed once for all of them.
Pack = collections.namedtuple("Pack", "prefix rows length")


def read_rows(path, copy_case=None):
    """[(prompt, completion)]; with the pattern copy_case, completions are in the prompt's spelling (see copied_case)."""
    rows = []
    try:
        with open(path, encoding="utf8") as lines:
            for number, line in enumerate(lines, 1):
                prompt, completion = _row(line, f"{path}:{number}")
                rows.append((prompt, copied_case(prompt, completion, copy_case) if copy_case else completion))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8: {error.reason} at byte {error.start}") from error
    if not rows:
        raise DataError(f"{path}: no examples")
    return rows


def _row(line, where):
    try:
        row = json.loads(line)
        texts = row["prompt"], row["completion"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{where}: expected an object with prompt and completion: {error!r}") from error
    if not all(isinstance(text, str) and text for text in texts):
        raise DataError(f"{where}: prompt and completion: expected texts that are not empty")
    return texts


def value_of(match):
    """(value, where it begins, where it ends) of a match of a pattern of values: its first group that took part, or all of it."""
    group = next((g for g in range(1, match.re.groups + 1) if match[g] is not None), 0)
    return match[group], match.start(group), match.end(group)


def copied_case(prompt, completion, pattern):
    """The completion with its values in the prompt's spelling. The value of a match of the pattern is its first group that took
    part, or all of it. A value that the prompt has in another case only is replaced by its last occurrence there."""
    folded, parts, done = prompt.lower(), [], 0
    if len(folded) != len(prompt):  # a few letters have a lower case of two characters
        return completion
    for match in re.finditer(pattern, completion):
        value, begin, end = value_of(match)
        at = -1 if value in prompt else folded.rfind(value.lower())
        if at >= 0:
            parts += [completion[done:begin], prompt[at:at + len(value)]]
            done = end
    return "".join(parts) + completion[done:]


def encode_rows(encode, rows, context):
    """([(prefix, [Row])] for each first line, number of completion tokens, number of rows longer than the context, which are left
    out). A line feed is a token of its own, so that a first line can be encoded apart."""
    groups, first, left_out = {}, 0, 0
    for prompt, completion in rows:
        head, feed, rest = prompt.partition("\n")
        if not rest:
            head, feed, rest = "", "", prompt
        prefix, members = groups.setdefault(head, ([BOS] + (encode(head + feed) if head + feed else []), []))
        row = Row(encode(rest), encode(completion) + [EOS], first)
        if len(prefix) + len(row.prompt) + len(row.completion) > context:
            left_out += 1
        else:
            members.append(row)
            first += len(row.completion)
    return [group for group in groups.values() if group[1]], first, left_out


def _packs(groups, pack_tokens, source):
    """Each row in one pack. A pack has at most pack_tokens tokens or one row."""
    for prefix, members in groups:
        order = source.sample(members, len(members))
        while order:
            rows, length = [], len(prefix)
            while order and (not rows or length + len(order[-1].prompt) + len(order[-1].completion) <= pack_tokens):
                rows.append(order.pop())
                length += len(rows[-1].prompt) + len(rows[-1].completion)
            yield Pack(prefix, rows, length)


def epoch_batches(groups, batch_tokens, pack_tokens, seed):
    """The batches of an epoch, as the seed decides: lists of packs that fill at most batch_tokens tokens with the padding, or of
    one pack. The packs of a batch have similar lengths."""
    source, batches = random.Random(seed), []
    packs = list(_packs(groups, pack_tokens, source))
    source.shuffle(packs)
    for begin in range(0, len(packs), 2048):
        batch = []
        for pack in sorted(packs[begin:begin + 2048], key=lambda pack: pack.length):
            if batch and pack.length * (len(batch) + 1) > batch_tokens:
                batches.append(batch)
                batch = []
            batch.append(pack)
        batches.append(batch)
    source.shuffle(batches)
    return batches
