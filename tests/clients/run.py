#!/usr/bin/env python3
"""Runs real clients, unchanged, against a whole cluster, each in a virtual environment of its own, and prints a table.

    python3 tests/clients/run.py                     # all
    python3 tests/clients/run.py openai litellm      # some
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import urllib.request

from recorder import Recorder
from server import MODEL, cluster_for_clients
from stopwatch import at_most

HERE = pathlib.Path(__file__).resolve().parent
LEFT_OUT = {"sglang bench_serving": "needs PyTorch and the kernels of SGLang, even to send requests"}
CLIENT_LIMIT_S = at_most(120)  # on a busy machine the imports of some take minutes


def scripts(names):
    """{name of the client: its script}"""
    found = {path.stem.removeprefix("with_"): path for path in sorted(HERE.glob("with_*.py"))}
    unknown = [name for name in names if name not in found]
    if unknown:
        sys.exit(f"run: no client {', '.join(unknown)}; there are {', '.join(found)}")
    return {name: found[name] for name in names or found}


def metadata(script):
    """The inline metadata of a script (PEP 723)."""
    block = re.search(r"(?m)^# /// script$\n((?:^#.*$\n)+?)^# ///$", script.read_text(encoding="utf8"))
    return tomllib.loads(re.sub(r"(?m)^# ?", "", block[1]))


def environment_of(name, packages, alone, cache):
    """(Python of a virtual environment, None) or (None, why it cannot be made). alone: packages without what they require."""
    folder = cache / name
    done, python = folder / "packages.txt", folder / "bin/python"
    if done.exists() and done.read_text() == "\n".join([*packages, *alone]):
        return python, None
    shutil.rmtree(folder, ignore_errors=True)
    if uv := shutil.which("uv"):
        commands = [[uv, "venv", "-q", "-p", sys.executable, folder], [uv, "pip", "install", "-q", "-p", python, *packages]]
    else:
        commands = [[sys.executable, "-m", "venv", folder],
                    [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]]
    if alone:
        commands.append([*commands[1][:-len(packages)], "--no-deps", *alone])
    for command in commands:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode != 0:
            return None, "cannot be installed: " + " ".join(run.stdout.split())[-300:]
    done.write_text("\n".join([*packages, *alone]))
    return python, None


def version_of(python, package):
    command = [python, "-c", f"import importlib.metadata as m; print(m.version('{package}'))"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.strip()


def run_client(name, script, options, url, model):
    """A row of the table: dict(client, version, results, why)."""
    told = metadata(script)
    row = dict(client=name, version="", results=[], why="")
    own = told.get("tool", {}).get("clients", {})
    if "large" in own and not options.large:
        return dict(row, why=f"left out without --large: {own['large']}")
    packages, alone = told["dependencies"], own.get("alone", [])
    python, why = environment_of(name, packages, alone, options.cache)
    if why:
        return dict(row, why=why)
    row["version"] = version_of(python, re.split(r"[\[=<>~ ]", [*alone, *packages][0])[0])
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        if options.record:
            recorder = stack.enter_context(Recorder(url, options.record))
            recorder.client, recorder.check, url = f"{name} {row['version']}", pathlib.Path(folder, "check"), recorder.url
        checks = pathlib.Path(folder, "checks.json")
        environment = dict(os.environ, COPPICE_URL=url, COPPICE_MODEL=model, COPPICE_FOLDER=folder, COPPICE_CHECKS=str(checks),
                           PYTHONPYCACHEPREFIX=str(options.cache / "pycache"), HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1",
                           HF_HOME=f"{folder}/hf", DO_NOT_TRACK="1", PATH=f"{python.parent}:{os.environ['PATH']}")
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        process = subprocess.Popen([python, script], env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
        try:
            output, _ = process.communicate(timeout=CLIENT_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            row["why"] = f"not done after {CLIENT_LIMIT_S} s"
        if checks.exists():
            row["results"] = json.loads(checks.read_text())
        elif not row["why"]:
            row["why"] = "ended without results: " + " ".join(output.split())[-300:]
    print(f"---- {name} {row['version']}\n{output}", flush=True)
    return row


def table(rows):
    lines = ["| client | version | passed | failed | not served | why |", "|---|---|---|---|---|---|"]
    for row in rows:
        by = {outcome: [r for r in row["results"] if r["outcome"] == outcome]
              for outcome in ("passed", "failed", "not served", "passes now")}
        why = [row["why"]] if row["why"] else []
        why += [f"{r['name']}: {' '.join(r['why'].split())[:160]}" for r in by["failed"]]
        why += [f"{r['name']} passes now ({r['reason']})" for r in by["passes now"]]
        why += [f"{reason}: {', '.join(r['name'] for r in by['not served'] if r['reason'] == reason)}"
                for reason in dict.fromkeys(r["reason"] for r in by["not served"])]
        lines.append(f"| {row['client']} | {row['version']} | {len(by['passed'])} | {len(by['failed'])} | {len(by['not served'])} | "
                     f"{'; '.join(why)} |")
    return "\n".join(lines)


def run_all(options, url, model):
    """Whether the server failed no client."""
    options.cache = options.cache.resolve()
    options.cache.mkdir(parents=True, exist_ok=True)
    rows = [run_client(name, script, options, url, model) for name, script in scripts(options.clients).items()]
    if not options.clients:
        rows += [dict(client=name, version="", results=[], why=why) for name, why in LEFT_OUT.items()]
    print(table(rows))
    return not any(row["why"].startswith(("not done", "ended without")) or any(r["outcome"] == "failed" for r in row["results"])
                   for row in rows)


def main():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "coppice/clients")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clients", nargs="*", help="names of clients; none: all")
    parser.add_argument("--url", help="a server that runs, such as http://127.0.0.1:8000; without it, one is started")
    parser.add_argument("--cache", type=pathlib.Path, default=cache, help=f"the folder of the virtual environments ({cache})")
    parser.add_argument("--large", action="store_true", help="also clients that need many gigabytes")
    parser.add_argument("--record", metavar="FILE", help="append each request to FILE, as JSON lines")
    options = parser.parse_args()
    if options.url:
        with urllib.request.urlopen(options.url + "/v1/models") as answer:
            good = run_all(options, options.url, json.load(answer)["data"][0]["id"])
    else:
        with cluster_for_clients() as cluster:
            good = run_all(options, f"http://127.0.0.1:{cluster.port}", MODEL)
    sys.exit(not good)


if __name__ == "__main__":
    main()
