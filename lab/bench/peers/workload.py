"""What every engine is asked: greedy or beam search, of one request or several at a time, and prompts that no cache has seen."""
import dataclasses
import json
import pathlib
import re

TYPES = ("f32", "bf16", "int8", "int4")
FILE = "file"  # the types that a GGUF file has


class WorkloadError(Exception):
    """Names the argument and what is wrong."""


@dataclasses.dataclass(frozen=True)
class Work:
    width: int      # 1: greedy
    requests: int   # at a time

    @property
    def name(self):
        return f"{self.width}x{self.requests}"

    @property
    def label(self):
        what = "greedy" if self.width == 1 else f"beam search, W = {self.width}"
        return f"{what}, {self.requests} request{'s' * (self.requests > 1)}"


def read_works(text):
    """[Work] of '1x8,4x1': WIDTHxREQUESTS, with commas."""
    works = []
    for part in text.split(","):
        match = re.fullmatch(r"([1-9]\d?)x([1-9]\d?)", part)
        if not match:
            raise WorkloadError(f"--works: expected WIDTHxREQUESTS such as 4x1, got '{part}'")
        works.append(Work(int(match[1]), int(match[2])))
    return works


def read_types(text, model):
    """[type] of 'f32,int8'; of None: all that the model may be given. A GGUF file has its own."""
    known = (FILE,) if model.suffix == ".gguf" else TYPES
    types = list(known) if text is None else text.split(",")
    for kind in types:
        if kind not in known:
            raise WorkloadError(f"--types: '{kind}' for {model.name}: expected some of {','.join(known)}")
    return types


def read_text(path):
    """The text of a file, or of the prompts in JSON lines with `prompt` or `turns`."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if not str(path).endswith(".jsonl"):
        return text
    try:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        return "\n".join(row["prompt"] if "prompt" in row else row["turns"][0] for row in rows)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise WorkloadError(f"{path}: expected lines with a prompt or turns") from error


class Prompts:
    """Windows of a text. They begin differently, as early as the text permits, so an engine has computed next to nothing of one before. All
    are equally long, so an engine that pads the prompts of a batch has nothing to pad."""

    def __init__(self, ids, first, length, count):
        """ids: of the text. first: the special ids that every prompt begins with. count: how many windows there must be."""
        own = length - len(first)
        begins = []
        for same in range(1, own + 1):  # no two have their first `same` tokens in common
            begins = self.windows(ids, own, count, same)
            if len(begins) == count:
                break
        else:
            raise WorkloadError(f"--text: {len(ids)} tokens have no {count} prompts of {length} that begin differently; name a longer text")
        self.left = [first + ids[begin:begin + own] for begin in begins]

    @staticmethod
    def windows(ids, own, count, same):
        """Up to `count` places, spread over the text: first those a stride apart, then those between."""
        places, begins, seen = len(ids) - own + 1, [], set()
        stride = max(1, places // max(1, count))
        for shift in range(stride):
            for begin in range(shift, places, stride):
                start = tuple(ids[begin:begin + same])
                if len(begins) < count and start not in seen:
                    seen.add(start)
                    begins.append(begin)
        return begins

    def take(self, count):
        taken, self.left = self.left[:count], self.left[count:]
        return taken
