#!/usr/bin/env python3
"""Measures Coppice beside other engines with the same model, prompts and number of threads: greedy decoding and beam search, of one
request and of several at a time, in f32, bf16, int8 and 4 bits where an engine has them, or from a GGUF file as it is.

  deploy/models.sh get smollm2                       # prints target: DIR
  lab/bench/peers/compare.py --model DIR --threads 2 --json run.jsonl
  lab/bench/peers/compare.py --report run.jsonl more.jsonl --markdown

Coppice is a cluster that deploy/cluster.sh starts, asked over HTTP. A peer runs in a process of its own and is called there; its time
has no HTTP. Peers are pinned packages of PyPI (peers.toml), installed once into a virtual environment. One that cannot be had is named
and left out. Each prompt is a window of --text that no engine has seen before; all are equally long. Texts have --tokens tokens, none
ends before. All engines of a type are loaded at the same time and take turns in random order; the first turn is not counted.

The table: medians over the turns [least, most] of the tokens of the returned texts per second, prompt included; "of coppice" is the
median of the ratio within a turn; "same texts" counts texts that equal Coppice's. In f32 it is said where they differ.

Needs the standard library alone, and for the peers Python's venv and pip. Exit status 1 if Coppice does not run, 2 for wrong arguments,
130 after Ctrl-C. Processes and converted models are gone at the end; the environment stays for the next run (--venv).
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import environment  # noqa: E402
import table  # noqa: E402
from engines import ROOT, Coppice, EngineError, Peer  # noqa: E402
from workload import FILE, TYPES, Prompts, WorkloadError, read_text, read_types, read_works  # noqa: E402

# OpenMP's threads go on for a moment after their work. The next engine waits until they sleep.
SETTLE_S = 0.2


def tell(text):
    print(f"compare: {text}", file=sys.stderr, flush=True)


def at_least_one(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {value}")
    return value


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, metavar="DIR", help="Hugging Face folder of Llama architecture, or a GGUF file")
    parser.add_argument("--draft", type=pathlib.Path, metavar="DIR", help="its draft model: coppice+drafts is measured too")
    parser.add_argument("--peers", metavar="NAMES", help="of the table of peers, with commas; none: Coppice alone; default: those of the table")
    parser.add_argument("--table", type=pathlib.Path, default=HERE / "peers.toml", metavar="FILE", help="another table of peers")
    parser.add_argument("--types", help=f"weights: of {', '.join(TYPES)} (default: all); a GGUF file keeps its own ({FILE})")
    parser.add_argument("--works", default="1x1,1x8,4x1,4x4", help="WIDTHxREQUESTS; width 1 is greedy (%(default)s)")
    parser.add_argument("--threads", type=at_least_one, default=2, help="of each engine (%(default)s)")
    parser.add_argument("--turns", type=at_least_one, default=5, help="(%(default)s)")
    parser.add_argument("--tokens", type=at_least_one, default=32, help="of each answer (%(default)s)")
    parser.add_argument("--prompt-tokens", type=at_least_one, default=64, help="of each prompt (%(default)s)")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "docs/decisions.md", metavar="FILE",
                        help="where prompts are from: a text, or JSON lines with prompt or turns (docs/decisions.md)")
    parser.add_argument("--venv", type=pathlib.Path, default=environment.cache_folder(), metavar="DIR",
                        help="the peers' virtual environment, made if it is missing (%(default)s)")
    parser.add_argument("--remove-venv", action="store_true", help="remove it at the end")
    parser.add_argument("--python", metavar="PROGRAM", help="a Python that has the peers' packages: nothing is installed")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one answer, or for a model to load (%(default)s)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="JSON lines: a record for each answer; the file must not exist")
    parser.add_argument("--markdown", action="store_true", help="the table in Markdown")
    parser.add_argument("--report", nargs="+", type=pathlib.Path, metavar="FILE", help="measure nothing: the table of earlier runs")
    chosen = parser.parse_args(arguments)
    if (chosen.model is None) == (chosen.report is None):
        parser.error("give --model DIR, or --report FILE")
    return chosen


class Records:
    """All records of this run, also as lines of a file."""

    def __init__(self, path):
        self.rows = []
        try:
            self.file = open(path, "x", encoding="utf8") if path else None
        except OSError as error:
            raise WorkloadError(f"--json: {path}: {error.strerror}") from error

    def add(self, **row):
        self.rows.append(row)
        if self.file:
            self.file.write(json.dumps(row) + "\n")
            self.file.flush()

    def close(self):
        if self.file:
            self.file.close()


def processor():
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown processor"


def policy():
    """The scheduling policy of this process, which its engines inherit."""
    return {os.SCHED_FIFO: "real-time (FIFO)", os.SCHED_RR: "real-time (RR)"}.get(os.sched_getscheduler(0), f"nice {os.getpriority(os.PRIO_PROCESS, 0)}")


def described(arguments, program="lab/bench/peers/compare.py"):
    return {"format_version": table.FORMAT_VERSION, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "model": arguments.model.name, "text": arguments.text.name, "cpu": processor(), "cores": os.cpu_count(),
            "usable_cores": len(os.sched_getaffinity(0)), "policy": policy(), "threads": arguments.threads, "tokens": arguments.tokens,
            "prompt_tokens": arguments.prompt_tokens, "command": shlex.join([program, *sys.argv[1:]])}


def prepared_peers(arguments, work, records):
    """The peers that can be had. The others are recorded as absent."""
    known = environment.read_peers(arguments.table)
    names = [name for name in known if known[name].get("by_default", True)] if arguments.peers is None else arguments.peers.split(",")
    names = [] if names == ["none"] else names
    for name in names:
        if name not in known:
            raise WorkloadError(f"--peers: unknown '{name}', expected some of {','.join(known)}, or none")
    found = []
    for name in names:
        peer = known[name]
        try:
            if arguments.python:
                python = arguments.python
                environment.check(python, name, peer)
            else:
                python = environment.prepare(arguments.venv, name, peer, tell)
        except environment.PeerError as error:
            tell(f"{error}; it is left out")
            records.add(kind="absent", engine=name, reason=str(error))
            continue
        folder = work / name
        folder.mkdir()
        found.append(Peer(name, python, arguments.table.parent / peer["program"], peer["beams"], arguments.model.resolve(), folder,
                          arguments.threads, arguments.timeout))
    return found


def coppices(arguments, work):
    found = []
    for name, draft in (("coppice", None), ("coppice+drafts", arguments.draft)):
        if name == "coppice" or draft:
            folder = work / name
            folder.mkdir()
            found.append(Coppice(arguments.model.resolve(), folder, arguments.threads, draft and draft.resolve(), arguments.timeout, name))
    return found


class Comparison:
    """All turns with one type of weights. Engines that fail are recorded as absent; the first engine must not fail."""

    def __init__(self, engines, kind, records):
        self.engines, self.kind, self.records = list(engines), kind, records

    def leave_out(self, engine, error):
        if engine is self.engines[0]:
            raise error
        engine.stop()
        tell(f"{self.kind}: {error}; it is left out")
        self.records.add(kind="absent", type=self.kind, engine=engine.name, reason=str(error))
        self.engines.remove(engine)

    def start(self):
        for engine in list(self.engines):
            tell(f"{self.kind}: loading {engine.name}")
            try:
                engine.start(self.kind)
                self.records.add(kind="engine", type=self.kind, engine=engine.name, version=engine.version)
            except EngineError as error:
                self.leave_out(engine, error)

    def measure(self, works, turns, prompts, tokens):
        """Turn 0 warms up: it is not recorded."""
        for turn in range(turns + 1):
            tell(f"{self.kind}: turn {turn} of {turns}")
            for work in works:
                asked = prompts.take(work.requests)
                order = [engine for engine in self.engines if work.width == 1 or engine.beams]
                random.Random(f"{self.kind} {turn} {work.name}").shuffle(order)
                for engine in order:
                    time.sleep(SETTLE_S)
                    try:
                        seconds, ids = engine.generate(asked, work.width, tokens)
                        if [len(text) for text in ids] != [tokens] * len(asked):
                            raise EngineError(f"{engine.name}: texts of {[len(text) for text in ids]} tokens, expected {len(asked)} of {tokens}")
                    except EngineError as error:
                        self.leave_out(engine, error)
                        continue
                    if turn > 0:
                        self.records.add(kind="answer", type=self.kind, work=work.name, turn=turn, engine=engine.name, seconds=seconds, ids=ids)


def remove_environment(folder):
    """Removes a virtual environment, and no other folder that --venv may have named by mistake."""
    if (folder / "pyvenv.cfg").is_file():
        shutil.rmtree(folder, ignore_errors=True)


def measure(arguments):
    works, kinds, text = read_works(arguments.works), read_types(arguments.types, arguments.model), read_text(arguments.text)
    if policy().startswith("real-time") and len(os.sched_getaffinity(0)) == 1:
        tell("real-time on one core: requests reach the server only when it waits, so several at a time are not computed together")
    with contextlib.ExitStack() as stack:
        records = Records(arguments.json)
        stack.callback(records.close)
        work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coppice.peers.")))
        if arguments.remove_venv and not arguments.python:
            stack.callback(remove_environment, arguments.venv)
        records.add(kind="run", **described(arguments), turns=arguments.turns)
        ours = coppices(arguments, work)
        engines = ours + prepared_peers(arguments, work, records)
        for kind in kinds:
            with contextlib.ExitStack() as running:
                for engine in engines:
                    running.callback(engine.stop)
                comparison = Comparison(engines, kind, records)
                comparison.start()
                ids, first = ours[0].tokens_of(text)
                prompts = Prompts(ids, first, arguments.prompt_tokens, sum(one.requests for one in works) * (arguments.turns + 1))
                records.add(kind="load", type=kind, when="before", load=os.getloadavg())
                comparison.measure(works, arguments.turns, prompts, arguments.tokens)
                records.add(kind="load", type=kind, when="after", load=os.getloadavg())
        for engine in ours:
            if engine.cached:
                tell(f"{engine.cached} tokens of prompts came from a cache of {engine.name}: its times are too short")
    return records.rows


def show(rows, markdown):
    print("\n".join(table.lines(rows, markdown)))
    for note in table.notes(rows):
        print(note)
    sys.stdout.flush()


def run(work, tell):
    """Calls work. Signals end the program; faults are told, and are its exit status: 1 if Coppice does not run, 2 otherwise."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts a command with & ignores it
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        work()
    except (WorkloadError, table.RecordError, environment.PeerError) as error:
        tell(error)
        sys.exit(2)
    except EngineError as error:
        tell(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def main():
    arguments = parse_arguments()
    run(lambda: show(table.read_records(arguments.report) if arguments.report else measure(arguments), arguments.markdown), tell)


if __name__ == "__main__":
    main()
