"""Where the programs are, for the launchers in Python: in the release build of a tree, or in PREFIX/bin of an installation, whose launchers
are below PREFIX/lib/coppice. And what a user calls the launchers there. environment.sh has the same for bash."""
import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTALLED = not (ROOT / "CMakeLists.txt").is_file()
# What the command `coppice` calls them.
COMMANDS = {"cluster.sh up": "coppice up", "cluster.sh down": "coppice down", "cluster.sh status": "coppice status",
            "cluster.sh": "coppice up", "demo.sh": "coppice demo", "models.sh": "coppice models", "cluster_key.sh": "coppice key",
            "chat.py": "coppice chat"}
SCRIPT = re.compile(rf"(?<![\w/])(?:deploy/)?({'|'.join(map(re.escape, COMMANDS))})(?!\w)")


def program_folder():
    """The folder of the programs, as an absolute path: $COPPICE_BIN, if that is set."""
    default = ROOT.parents[1] / "bin" if INSTALLED else ROOT / "build/release/bin"
    return os.path.abspath(os.environ.get("COPPICE_BIN") or default)


def with_commands(text):
    """The text with the commands of `coppice` in place of the scripts that do the same in a tree."""
    return SCRIPT.sub(lambda match: COMMANDS[match[1]], text)


def told(text):
    """A message that names scripts, as the user of this tree or installation can follow it."""
    return with_commands(text) if INSTALLED else text
