"""The files of sampled conversations. A folder has sampling.json (how they were sampled) and piece-00000.npz, piece-00001.npz, ...,
each written whole. Numbers of a piece:

  ids [tokens]             the ids of all conversations, one after another
  sizes [conversations]    tokens of each
  asked [conversations]    how many of them are the prompt; the rest is the answer
  top [answered, KEPT]     for each id of an answer, the target's most likely ids (PAD where there are fewer)
  top_p [answered, KEPT]   their probabilities at temperature 1
  own_p [answered]         that of the id itself
"""
import json
import os
import re
import zipfile

import numpy
from tool_arguments import DataError

KEPT = 20       # alternatives that a server lists
PAD = 0         # with probability 0
PER_PIECE = 32  # conversations
HELD_OUT = 20   # one conversation of so many is never trained on


def path_of(folder, number):
    return os.path.join(folder, f"piece-{number:05}.npz")


def numbers(folder):
    """Of the pieces that are there, in order."""
    found = (re.fullmatch(r"piece-(\d{5})\.npz", name) for name in os.listdir(folder))
    return sorted(int(match[1]) for match in found if match)


def write(folder, number, conversations):
    """conversations: dictionaries with ids, asked, top, top_p, own_p."""
    arrays = {"ids": numpy.concatenate([c["ids"] for c in conversations]).astype(numpy.uint32),
              "sizes": numpy.array([len(c["ids"]) for c in conversations], numpy.int64),
              "asked": numpy.array([c["asked"] for c in conversations], numpy.int64),
              "top": numpy.concatenate([c["top"] for c in conversations]).astype(numpy.uint32),
              "top_p": numpy.concatenate([c["top_p"] for c in conversations]).astype(numpy.float16),
              "own_p": numpy.concatenate([c["own_p"] for c in conversations]).astype(numpy.float32)}
    path = path_of(folder, number)
    with open(path + ".new", "wb") as file:
        numpy.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def read(folder, number):
    """The conversations of a piece, as `write` takes them, with the number of each in the folder."""
    path = path_of(folder, number)
    try:
        with open(path, "rb") as data, numpy.load(data, allow_pickle=False) as file:
            ids, sizes, asked, top, top_p, own_p = (file[name] for name in ("ids", "sizes", "asked", "top", "top_p", "own_p"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: is not a piece of sampled text: {error}") from error
    answered = int((sizes - asked).sum())
    if len(sizes) != len(asked) or sizes.sum() != len(ids) or not answered == len(top) == len(top_p) == len(own_p) \
            or (asked < 1).any() or (asked >= sizes).any():
        raise DataError(f"{path}: its arrays do not fit together")
    conversations, at, row = [], 0, 0
    for place, (size, prompt) in enumerate(zip(sizes.tolist(), asked.tolist())):
        rows = slice(row, row + size - prompt)
        conversations.append({"number": number * PER_PIECE + place, "ids": ids[at:at + size], "asked": prompt,
                              "top": top[rows], "top_p": top_p[rows], "own_p": own_p[rows]})
        at, row = at + size, rows.stop
    return conversations


def open_folder(folder, how):
    """Makes the folder, or finds that it was sampled in the same way."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "sampling.json")
    if os.path.exists(path):
        before = description(folder)
        changed = [name for name in {**how, **before} if before.get(name) != how.get(name)]
        if changed:
            raise DataError(f"{path}: {changed[0]} was {before.get(changed[0])!r} and is {how.get(changed[0])!r} now; "
                            "sample into another folder")
        return
    with open(path + ".new", "w", encoding="utf8") as file:
        json.dump(how, file, indent=1)
    os.replace(path + ".new", path)


def description(folder):
    path = os.path.join(folder, "sampling.json")
    try:
        with open(path, encoding="utf8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {getattr(error, 'strerror', None) or error} (distill_draft.py sample writes it)") from error
