#!/usr/bin/env python3
"""Which draft a target gets. `auto` looks beside the target and in the catalogue of models, and takes the first that fits; it fetches
nothing. Used by cluster.py, and by launchers in bash:

  draft_choice.py --target DIR --draft DIR|auto|none [--bin DIR]   prints the kind (model, eagle3 or dflash) and the path in two lines,
                                                                   nothing if there is no draft; on standard error what was chosen
"""
import argparse
import dataclasses
import os
import pathlib
import re
import subprocess
import sys

import installation
from draft_files import EAGLE3, MODEL, NAMES, misfit, read_model_files

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "models"))
import models  # noqa: E402

AUTO, NONE = "auto", "none"
SMALLER = 4  # a model that nothing marks as a draft is one only if its weights are so many times smaller
SUFFIXES = "drafts are taken from what repeats in prompt and answer"
MARKS = re.compile(r"draft|eagle-?3|dflash|dspark", re.IGNORECASE)
REASON = re.compile(r"^coppice-\w+: (.*)", re.MULTILINE)
CHECK_TIMEOUT_S = 60


@dataclasses.dataclass(frozen=True)
class Choice:
    path: str   # None: no draft
    kind: str
    said: tuple  # lines for the user


def stems(target):
    """What the names of drafts of the target begin with."""
    name = pathlib.Path(target).name.removesuffix(".gguf")
    return list(dict.fromkeys((name, re.sub(r"[-_.]target$", "", name))))


def is_model(path):
    return os.path.isfile(path) if str(path).endswith(".gguf") else os.path.isfile(os.path.join(path, "config.json"))


def neighbours(target):
    """The other models in the target's folder, sorted by name."""
    try:
        entries = sorted(pathlib.Path(target).parent.iterdir())
    except OSError:
        return []
    return [str(entry) for entry in entries
            if not entry.name.startswith(".") and not entry.name.endswith(".partial") and is_model(entry) and not os.path.samefile(entry, target)]


def rank_of_name(name):
    """Drafts made for a target first, then heads: by the name."""
    word = MARKS.search(name)[0].lower()
    return ("draft", "eagle3", "dflash", "dspark").index(word.replace("-", ""))


def named(target, beside):
    """Those whose name says that they are drafts of the target: T-draft, T-eagle3, or a bare `draft`."""
    found = []
    for path in beside:
        name = pathlib.Path(path).name.removesuffix(".gguf")
        if MARKS.fullmatch(name):
            found.append((len(stems(target)), path))
        for place, stem in enumerate(stems(target)):
            rest = name[len(stem):] if name.lower().startswith(stem.lower()) else ""
            if re.match(r"[-_.]", rest) and MARKS.search(rest):
                found.append((place, path))
                break
    return [path for _, path in sorted(found, key=lambda at: (at[0], rank_of_name(pathlib.Path(at[1]).name), at[1]))]


def of_catalogue(target):
    """The drafts of catalogue models whose file, or the folder made of it, the target is."""
    for name, model in models.read_catalogue().items():
        file = models.data_folder() / f"{name}-{model['version']}.gguf"
        if "draft" not in model or not file.is_file():
            continue
        same = os.path.samefile(file, target)
        copy = os.path.isfile(target) and pathlib.Path(target).name == file.name and os.path.getsize(target) == file.stat().st_size
        if same or copy or models.folder_of_file(file) == pathlib.Path(target):
            yield str(models.draft_folder(model, file))


def candidates(target, say):
    """(ModelFiles, why) of what may be a draft of the target, the likeliest first. Each path comes once."""
    about = read_model_files(target)
    beside, seen = neighbours(target), set()
    try:
        fetched = list(of_catalogue(target))
    except (models.Failure, OSError) as error:
        fetched = []
        say(f"the catalogue of models is left out: {error}")
    for paths, why in ((fetched, "fetched for the target"), (named(target, beside), "beside the target, by its name")):
        for path in paths:
            files = read_model_files(path)
            if files is not None and path not in seen:
                seen.add(path)
                yield files, why
    if about is None or about.vocab is None:
        return  # of a GGUF file the sizes are not known here
    rest = [files for files in map(read_model_files, beside) if files is not None and files.path not in seen]
    for files in rest:
        sized = files.state_inputs or files.hidden == about.hidden  # of a checkpoint without safetensors only config.json is read
        if files.takes_states() and files.vocab and sized and not misfit(files, about):
            yield files, "beside the target, by its sizes"
    for files in sorted(rest, key=lambda files: files.bytes):
        if files.kind == MODEL and files.vocab == about.vocab and 0 < files.bytes * SMALLER <= about.bytes:
            yield files, "beside the target, smaller, with its vocabulary"


def program_check(worker):
    """check(target, draft): why the worker refuses the draft, or None. Without the program nothing is refused."""
    def check(target, draft):
        if not os.access(worker, os.X_OK):
            return None
        try:
            told = subprocess.run([worker, f"--model={target}", "--check", f"--check_draft={draft}"], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=CHECK_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"no answer of {worker} --check within {CHECK_TIMEOUT_S} s"
        except OSError as error:
            return f"{worker}: {error.strerror}"
        if told.returncode == 0:
            return None
        reasons = REASON.findall(told.stderr)
        return reasons[0] if reasons else f"{worker} --check: exit status {told.returncode}"
    return check


def find(target, check, without=SUFFIXES):
    """The Choice for a target of this host. check: as program_check has it. without: what happens when there is no draft."""
    said, target = [], os.path.abspath(target)
    if not os.path.exists(target):
        return Choice(None, "", (f"draft: none looked for, since {target} is not on this host; {without}",))
    about = read_model_files(target)
    for files, why in candidates(target, lambda text: said.append(f"draft: {text}")):
        reason = (misfit(files, about) if about else None) or check(target, files.path)
        if reason is None:
            return Choice(files.path, files.kind, (*said, f"draft: {files.path}, {NAMES[files.kind]} ({why})"))
        said.append(f"draft: {files.path} does not fit and is not used: {reason}")
    return Choice(None, "", (*said, f"draft: none fits in {pathlib.Path(target).parent}; {without}"))


def kind_of(draft):
    """Of a draft that was named. What is not on this host counts as a model; the programs check what it is."""
    files = read_model_files(draft)
    return files.kind if files is not None else MODEL


def choose(target, draft, check, without=SUFFIXES):
    """The Choice for a draft that is a path, "auto" or "none"."""
    if draft == NONE:
        return Choice(None, "", ())
    if draft == AUTO:
        return find(target, check, without)
    kind = kind_of(draft)
    return Choice(draft, kind, () if kind == MODEL else (f"draft: {draft}, {NAMES[kind]}",))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--bin", default=installation.program_folder())
    args = parser.parse_args()
    choice = choose(args.target, args.draft, program_check(f"{args.bin}/coppice-worker"))
    for line in choice.said:
        print(line, file=sys.stderr)
    if choice.path is not None:
        print(f"{choice.kind}\n{choice.path}")


if __name__ == "__main__":
    main()
