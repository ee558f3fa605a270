#!/usr/bin/env python3
"""The command `coppice`: a table of its commands, each a launcher of deploy/ that it runs in its own place. deploy/coppice calls it.
Uses only the Python standard library."""
import dataclasses
import difflib
import os
import pathlib
import re
import subprocess
import sys

DEPLOY = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(DEPLOY / "launch"))
import installation  # noqa: E402

HELP = ("--help", "-h")


@dataclasses.dataclass(frozen=True)
class Command:
    name: str
    about: str          # what it does, as the list of commands says it
    words: tuple[str, ...]  # the launcher below deploy/, and what comes before the user's arguments


COMMANDS = (
    Command("up", "starts a cluster of your own models in the background", ("cluster.sh", "up")),
    Command("status", "shows the processes and nodes of a cluster; exits 0 if it is ready", ("cluster.sh", "status")),
    Command("down", "ends a cluster that up has started", ("cluster.sh", "down")),
    Command("demo", "a small cluster turns questions into SQL, with drafts and without, then serves", ("demo.sh",)),
    Command("chat", "chats with the model of a running cluster, in the terminal", ("chat.py",)),
    Command("models", "fetches a model, converts a GGUF file, or lists what can be fetched", ("models.sh",)),
    Command("key", "makes the key of a cluster", ("cluster_key.sh",)),
    Command("check", "reports whether this machine can run a cluster, and tests that it does", ("tool/check.py",)),
    Command("bench", "measures a running cluster with drafts and without", ("tool/bench.py",)),
)
BY_NAME = {command.name: command for command in COMMANDS}


class Usage(Exception):
    """Ends the program with its message and status 2."""


def line_of(command):
    path = DEPLOY / command.words[0]
    return [*([sys.executable, "-B"] if path.suffix == ".py" else []), str(path), *command.words[1:]]


def own_usage(text, command):
    """What the help text of cluster.sh says of one of its commands. All but lines that begin with another command is about up."""
    lines, mine = [], True
    for line in text.splitlines():
        begun = re.match(r"(?:cluster\.sh )?(up|down|status) ", line)
        if begun or line[0] != " ":
            mine = (begun[1] if begun else "up") == command.name
        lines += [line] if mine else []
    return "\n".join(lines) + "\n"


def help_of(command, columns=80):
    """What `coppice COMMAND --help` prints: the help text of the launcher. columns: how long a line is, if the launcher wraps them."""
    shown = subprocess.run([*line_of(command), "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True,
                           env=dict(os.environ, COLUMNS=str(columns))).stdout
    if command.words[0] == "cluster.sh":
        shown = own_usage(shown, command)
    return installation.with_commands(shown)


def overview():
    lines = [f"  {command.name:<8}{command.about}" for command in COMMANDS]
    return "\n".join(["usage: coppice COMMAND [ARGUMENT...]", "", "Serves large language models with speculative beam decoding.", "",
                      *lines, "", "coppice help COMMAND, or coppice COMMAND --help, says more; coppice --version prints the version.", ""])


def version():
    program = os.path.join(installation.program_folder(), "coppice-coordinator")
    try:
        printed = subprocess.run([program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise Usage(f"{program} does not tell its version: {getattr(error, 'strerror', None) or error}") from error
    return f"coppice {printed.split()[-1]}\n"


def find(name):
    if name not in BY_NAME:
        alike = difflib.get_close_matches(name, BY_NAME, 1)
        raise Usage(f"unknown command '{name}'{f', did you mean {alike[0]}?' if alike else ''} (see coppice --help)")
    return BY_NAME[name]


def run(arguments):
    if not arguments:
        sys.stderr.write(overview())
        raise SystemExit(2)
    first, rest = arguments[0], arguments[1:]
    if first in (*HELP, "help"):
        if len(rest) > 1 or first != "help" and rest:
            raise Usage(f"unexpected argument '{rest[-1]}' (see coppice --help)")
        sys.stdout.write(help_of(find(rest[0])) if rest else overview())
    elif first == "--version":
        sys.stdout.write(version())
    elif first.startswith("-"):
        raise Usage(f"unknown option '{first}' (see coppice --help)")
    elif any(word in HELP for word in (rest[:rest.index("--")] if "--" in rest else rest)):
        sys.stdout.write(help_of(find(first)))
    else:
        words = [*line_of(find(first)), *rest]
        os.execv(words[0], words)


if __name__ == "__main__":
    try:
        run(sys.argv[1:])
        sys.stdout.flush()
    except Usage as error:
        print(f"coppice: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # as of `coppice help up | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
