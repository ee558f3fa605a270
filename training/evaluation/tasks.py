"""Tasks: which questions there are, what a request asks, and how an answer is scored.

wikisql      JSON lines {"prompt", "completion"} or {"question", "columns", "sql"}; the answer must equal the reference.
translation  JSON lines {"prompt", "completion"}; answers are compared with the references by BLEU, as sacrebleu counts it.
prompts      JSON lines {"prompt" or "turns", "category"?}; an answer is scored by its log-likelihood under the target.
A file whose name ends in .xz is unpacked while it is read."""
import collections
import dataclasses
import importlib.util
import json
import lzma
import random

TASKS = ("wikisql", "translation", "prompts")


class DataError(Exception):
    """Names the file, the line and what is wrong."""


@dataclasses.dataclass(frozen=True)
class Question:
    line: int        # of the file, from 1: the question's name in records
    prompt: str
    reference: str   # "" with `prompts`
    category: str    # "" if the task has none


def normalise(text):
    """What two answers have in common that count as the same: runs of white space are one space, double quotes are dropped, and case
    does not count. The references quote values of several words and have the case of a table's cell, which no question shows."""
    return " ".join(text.replace('"', " ").casefold().split())


def matches(answer, reference):
    return normalise(answer) == normalise(reference)


def _text(row, key):
    if not isinstance(row.get(key), str) or not row[key].strip():
        raise ValueError(f"{key}: expected a text")
    return row[key]


def _wikisql(row, line):
    if "prompt" in row:
        return Question(line, _text(row, "prompt"), _text(row, "completion"), "")
    columns = row.get("columns")
    if isinstance(columns, list) and columns and all(isinstance(c, str) for c in columns):
        columns = ", ".join(columns)
    elif not isinstance(columns, str):
        raise ValueError("columns: expected a text or a list of texts")
    return Question(line, f"columns: {columns}\nquestion: {_text(row, 'question')}\nsql:", _text(row, "sql"), "")


def _translation(row, line):
    return Question(line, _text(row, "prompt"), _text(row, "completion"), "")


def _prompts(row, line):
    category = row.get("category", "")
    if not isinstance(category, str):
        raise ValueError("category: expected a text")
    turns = row.get("turns")
    if turns is None:
        return Question(line, _text(row, "prompt"), "", category)
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], str) or not turns[0].strip():
        raise ValueError("turns: expected a list of texts")
    return Question(line, turns[0], "", category)


def read_questions(path, task):
    """All questions of a file. DataError names the first line that is no question of the task."""
    read = {"wikisql": _wikisql, "translation": _translation, "prompts": _prompts}[task]
    opened = lzma.open if str(path).endswith(".xz") else open
    questions = []
    try:
        with opened(path, "rt", encoding="utf8") as lines:
            for number, text in enumerate(lines, 1):
                if not text.strip():
                    continue
                try:
                    row = json.loads(text)
                    if not isinstance(row, dict):
                        raise ValueError("expected an object")
                    questions.append(read(row, number))
                except ValueError as error:
                    raise DataError(f"{path}:{number}: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {error}") from error
    if not questions:
        raise DataError(f"{path}: no questions")
    return questions


def sample_questions(questions, count, seed=0):
    """So many questions in random order, as equally many of each category as there are. A larger count begins with the same ones."""
    order = list(questions)
    random.Random(seed).shuffle(order)
    groups = collections.defaultdict(list)
    for question in order:
        groups[question.category].append(question)
    chosen = []
    while groups and len(chosen) < count:
        for category in sorted(groups):
            chosen.append(groups[category].pop(0))
            if not groups[category]:
                del groups[category]
    return chosen[:count]


def choose(choices, how, reference=""):
    """The answer of a setting: a choice. "vote": the most frequent normalised text, and of equally frequent ones the likeliest. "any": one
    that matches the reference, if there is one."""
    if how == "first":
        return choices[0]
    if how == "any":
        return next((choice for choice in choices if matches(choice["text"], reference)), choices[0])
    count = collections.Counter(normalise(choice["text"]) for choice in choices)
    return max(choices, key=lambda choice: (count[normalise(choice["text"])], choice["joint_logprob"]))


def token_logprobs(choice):
    """The log-probabilities that the target gave to the tokens of a choice, of a completion or a chat."""
    entries = choice.get("logprobs") or {}
    if "content" in entries:
        return [token["logprob"] for token in entries["content"]]
    return entries.get("token_logprobs", [])


def need_modules(task):
    """DataError if a Python module that the scores need is missing."""
    if task == "translation" and importlib.util.find_spec("sacrebleu") is None:
        raise DataError("the task translation needs the Python module sacrebleu: pip install sacrebleu")


def bleu_counts(answer, reference):
    """What an answer adds to the sums of BLEU: n-grams of 1 to 4 words that the reference has too, all n-grams of 1 to 4 words, words
    of the answer, words of the reference."""
    from sacrebleu.metrics import BLEU
    found = BLEU(effective_order=True).sentence_score(answer.strip(), [reference.strip()])
    return [*found.counts, *found.totals, found.sys_len, found.ref_len]


def score(task, question, choices, how):
    """What a record keeps of an answer: text, tokens, `distinct`, and `correct`, `bleu_counts` or `log_likelihood` (nats per token)."""
    chosen = choose(choices, how, question.reference)
    record = {"answer": chosen["text"], "tokens": len(chosen["token_ids"]), "choices": len(choices),
              "distinct": len({normalise(choice["text"]) for choice in choices})}
    if task == "wikisql":
        return dict(record, correct=matches(chosen["text"], question.reference),
                    verbatim=chosen["text"].strip() == question.reference.strip())
    if task == "translation":
        return dict(record, bleu_counts=bleu_counts(chosen["text"], question.reference))
    own = token_logprobs(chosen)
    return dict(record, log_likelihood=sum(own) / len(own) if own else None)
