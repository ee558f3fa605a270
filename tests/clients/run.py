#!/usr/bin/env python3
"""Runs real clients, unchanged, against a whole cluster, each in a virtual environment of its own, and prints a table.

    python3 tests/clients/run.py                     # all
    python3 tests/clients/run.py openai litellm      # some
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cluster"))
from cluster import Cluster  # noqa: E402
from model_folders import ended_by_eos_alone  # noqa: E402
from recorder import Recorder  # noqa: E402

MODEL = "stories260k"
POSITIONS = 4096  # more than the model has learned: prompts of clients are longer than its stories
OWN_LIMIT_S = 300  # for a client


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


def environment_of(name, packages, cache):
    """(Python of a virtual environment that has the packages, None) or (None, why it cannot be made)."""
    folder = cache / name
    done, python = folder / "packages.txt", folder / "bin/python"
    if done.exists() and done.read_text() == "\n".join(packages):
        return python, None
    shutil.rmtree(folder, ignore_errors=True)
    if uv := shutil.which("uv"):
        commands = [[uv, "venv", "-q", "-p", sys.executable, folder], [uv, "pip", "install", "-q", "-p", python, *packages]]
    else:
        commands = [[sys.executable, "-m", "venv", folder],
                    [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]]
    for command in commands:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode != 0:
            return None, "cannot be installed: " + " ".join(run.stdout.split())[-300:]
    done.write_text("\n".join(packages))
    return python, None


def version_of(python, package):
    command = [python, "-c", f"import importlib.metadata as m; print(m.version('{package}'))"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.strip()


def run_client(name, script, url, cache):
    """A row of the table: dict(client, version, results, why)."""
    told = metadata(script)["tool"]["clients"] if "tool" in metadata(script) else {}
    packages = metadata(script)["dependencies"]
    row = dict(client=name, version="", results=[], why="")
    if why := told.get("left_out"):
        return dict(row, why=why)
    python, why = environment_of(name, packages, cache)
    if why:
        return dict(row, why=why)
    row["version"] = version_of(python, re.split(r"[\[=<>~ ]", packages[0])[0])
    with tempfile.TemporaryDirectory() as folder:
        checks = pathlib.Path(folder, "checks.json")
        environment = dict(os.environ, COPPICE_URL=url, COPPICE_MODEL=MODEL, COPPICE_FOLDER=folder, COPPICE_CHECKS=str(checks),
                           PYTHONDONTWRITEBYTECODE="1", HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=f"{folder}/hf",
                           DO_NOT_TRACK="1", PATH=f"{python.parent}:{os.environ['PATH']}")
        try:
            run = subprocess.run([python, script], env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, timeout=OWN_LIMIT_S)
            output = run.stdout
        except subprocess.TimeoutExpired as expired:
            output = (expired.stdout or b"").decode(errors="replace")
            row["why"] = f"not done after {OWN_LIMIT_S} s"
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


def run_all(options, url):
    rows = []
    cache = pathlib.Path(options.cache)
    cache.mkdir(parents=True, exist_ok=True)
    for name, script in scripts(options.clients).items():
        if options.record:
            with Recorder(url, options.record) as recorder:
                recorder.client = name
                rows.append(run_client(name, script, recorder.url, cache))
        else:
            rows.append(run_client(name, script, url, cache))
    print(table(rows))
    return any(row["why"].startswith(("not done", "ended without")) or any(r["outcome"] == "failed" for r in row["results"])
               for row in rows)


def main():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "coppice/clients")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clients", nargs="*", help="names of clients; none: all")
    parser.add_argument("--url", help="a server that runs, such as http://127.0.0.1:8000; without it, one is started")
    parser.add_argument("--cache", default=cache, help=f"the folder of the virtual environments ({cache})")
    parser.add_argument("--record", metavar="FILE", help="append each request to FILE, as JSON lines")
    options = parser.parse_args()
    if options.url:
        with urllib.request.urlopen(options.url + "/v1/models") as answer:
            globals()["MODEL"] = json.load(answer)["data"][0]["id"]
        sys.exit(run_all(options, options.url))
    with tempfile.TemporaryDirectory() as folder:
        target = ended_by_eos_alone(f"{folder}/{MODEL}")
        config = json.loads((target / "config.json").read_text())
        (target / "config.json").write_text(json.dumps(dict(config, max_position_embeddings=POSITIONS)))
        with Cluster(target=target, coordinator_flags=("--chat_template=chatml",)) as cluster:
            sys.exit(run_all(options, f"http://127.0.0.1:{cluster.port}"))


if __name__ == "__main__":
    main()
