"""The command line of cluster.sh: its options, and after -- the flags of the coordinator."""
import os
import re

from description import FILE_FLAGS, LISTEN, SETTINGS

PLACE_OPTIONS = {"port": int, "state": str}
DOWN_OPTIONS = {"forget": bool}
UP_OPTIONS = {"cluster": str, "hostfile": str, "gpus": str, "agent": str, "deadline": int, "preset": str, "dry-run": bool, "api-key": str}
# What cluster.sh itself says to the coordinator, and by which option it is told.
OWN_FLAGS = {"model": "--target", "control_listen": "control_port in a cluster file", "cluster_key_file": "--cluster-key"}
LEAST_KEY = 16  # characters, as the coordinator requires


class Usage(Exception):
    """Ends the script with its message and status 2."""


def parse(arguments):
    """(command, {option: value}, flags of the coordinator). Options are --name VALUE or --name=VALUE; the flags are what
    comes after --."""
    command = arguments[0] if arguments else ""
    if command not in ("up", "down", "status"):
        raise Usage(f"expected up, down or status, got '{command}'")
    kinds = dict(PLACE_OPTIONS)
    if command == "up":
        kinds |= UP_OPTIONS | {name.replace("_", "-"): setting.kind for name, setting in SETTINGS.items()}
    if command == "down":
        kinds |= DOWN_OPTIONS
    options, rest, flags = {}, list(arguments[1:]), []
    while rest:
        word = rest.pop(0)
        if word == "--" and command == "up":
            flags = flags_of(rest)
            break
        if not word.startswith("--"):
            raise Usage(f"unexpected argument '{word}'")
        name, equals, value = word[2:].partition("=")
        if name not in kinds:
            raise Usage(f"unknown option --{name} of {command}")
        if kinds[name] is bool:
            if equals:
                raise Usage(f"--{name} takes no value")
            options[name] = True
            continue
        if not equals:
            if not rest:
                raise Usage(f"--{name} needs a value")
            value = rest.pop(0)
        if kinds[name] is int:
            if not re.fullmatch(r"[0-9]{1,18}", value):
                raise Usage(f"--{name} must be a number, got '{value}'")
            value = int(value)
        options[name] = value
    if not 1 <= options.get("port", 8000) <= 65535:
        raise Usage(f"--port must be between 1 and 65535, got {options['port']}")
    return command, options, flags


def flags_of(words):
    """The words after --, each flag one word, the files that they name with absolute paths: status asks from another folder."""
    flags, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        if not re.match("--[a-z]", word):
            raise Usage(f"expected flags of coppice-coordinator after --, got '{word}'")
        if "=" not in word and rest and not rest[0].startswith("--"):
            word += "=" + rest.pop(0)
        name, equals, value = word[2:].partition("=")
        if name in OWN_FLAGS:
            raise Usage(f"--{name} after --: give {OWN_FLAGS[name]}")
        if value and (name in (*FILE_FLAGS, "config") or name == "chat_template" and os.path.isfile(value)):
            value = os.path.abspath(value)
        flags.append(f"--{name}{equals}{value}")
    return flags


def take_listen(flags, options):
    """(flags without --listen, its value or None)"""
    given = [flag.partition("=")[2] for flag in flags if flag.partition("=")[0] == "--listen"]
    if given:
        match = LISTEN.fullmatch(given[-1])
        if not match or not 1 <= int(match[2]) <= 65535:
            raise Usage(f"--listen after --: expected address:port, got '{given[-1]}'")
        for name in ("port", "cluster"):
            if name in options:
                raise Usage(f"--listen after --: --{name} says it")
    return [flag for flag in flags if flag.partition("=")[0] != "--listen"], given[-1] if given else None


def check_api_key(key, flags):
    if len(key) < LEAST_KEY:
        raise Usage(f"--api-key: a key has at least {LEAST_KEY} characters, got {len(key)}")
    if not re.fullmatch("[!-~]+", key) or key.startswith("#"):
        raise Usage("--api-key: a key has printable ASCII characters only, without spaces, and does not begin with #")
    if any(flag.partition("=")[0] == "--api_keys_file" for flag in flags):
        raise Usage("--api-key: --api_keys_file is given too; write the key into that file")
