#!/usr/bin/env python3
"""Measures generative recommendation: beam search over the items of a catalogue, Coppice beside other engines with the same model, histories
and number of threads.

  lab/bench/recommendation/make_recommender.py --out DIR
  lab/bench/recommendation/recommendation.py --data DIR --threads 2 --json run.jsonl
  lab/bench/recommendation/recommendation.py --report run.jsonl --markdown

A request has a history of random items and asks for the W best next items: a beam search of width W that returns all its hypotheses. Coppice
is a cluster that deploy/cluster.sh starts, asked over HTTP, with a catalogue, and also with drafts (coppice+drafts) and, with --free, without
a catalogue (coppice-free). A peer runs in a process of its own and is called there; its time has no HTTP (peers.toml; lab/bench/peers/compare.py
says how they are installed). The clients of a work send their requests at the same time. All engines are loaded at the same time and take
turns in random order; the first turn is not counted.

The table: requests/s are medians over the turns [least, most]; "of coppice" is the median of the ratio within a turn; latencies are those of
single requests; "illegal" are returned sequences that are no item; "same sets" counts answers whose set of items equals that of the reference,
beam search in float64 (reference.py; the first --checked turns, one client), and "of the set" is the mean share that they have in common.
"Repeated" is the median time of a second request with the same history, which is in the cache then: the time of decoding.

Needs NumPy, and for the peers Python's venv and pip. Exit status 1 if Coppice does not run, 2 for wrong arguments, 130 after Ctrl-C.
"""
import argparse
import contextlib
import dataclasses
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "peers")]
import numpy  # noqa: E402
import compare  # noqa: E402
import environment  # noqa: E402
import recommendation_table  # noqa: E402
import table  # noqa: E402
from engines import ROOT, Coppice, EngineError  # noqa: E402
from item_trie import Trie, read_items  # noqa: E402
from reference import Reference  # noqa: E402
from workload import TYPES, WorkloadError  # noqa: E402

COMPILER = pathlib.Path(os.environ.get("COPPICE_BIN", ROOT / "build/release/bin")) / "coppice-catalogue"
CATALOGUE = "items"


def tell(text):
    print(f"recommendation: {text}", file=sys.stderr, flush=True)


def numbers(text):
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1 or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"expected different numbers from 1 on with commas, got '{text}'")
    return found


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, metavar="DIR", help="what make_recommender.py has made")
    parser.add_argument("--type", default="f32", choices=TYPES, help="weights (%(default)s)")
    parser.add_argument("--widths", type=numbers, default="50,128,512", help="of the beam search (%(default)s)")
    parser.add_argument("--prompt-tokens", type=numbers, default="300,2500", help="of a history, multiples of an item's tokens (%(default)s)")
    parser.add_argument("--clients", type=numbers, default="1,4", help="requests at the same time (%(default)s)")
    parser.add_argument("--peers", metavar="NAMES", help="of the table of peers, with commas; none: Coppice alone; default: all")
    parser.add_argument("--table", type=pathlib.Path, default=HERE / "peers.toml", metavar="FILE", help="another table of peers")
    parser.add_argument("--no-drafts", action="store_true", help="without coppice+drafts")
    parser.add_argument("--free", action="store_true", help="also coppice-free, without a catalogue")
    parser.add_argument("--turns", type=compare.at_least_one, default=3, help="(%(default)s)")
    parser.add_argument("--checked", type=int, default=1, metavar="TURNS", help="turns whose answers are compared with the reference (%(default)s)")
    parser.add_argument("--threads", type=compare.at_least_one, default=2, help="of each engine (%(default)s)")
    parser.add_argument("--venv", type=pathlib.Path, default=environment.cache_folder().with_name("peers-recommendation"), metavar="DIR",
                        help="the peers' virtual environment, made if it is missing (%(default)s)")
    parser.add_argument("--python", metavar="PROGRAM", help="a Python that has the peers' packages: nothing is installed")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one answer, or for a model to load (%(default)s)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="JSON lines: a record for each answer; the file must not exist")
    parser.add_argument("--markdown", action="store_true", help="the table in Markdown")
    parser.add_argument("--report", nargs="+", type=pathlib.Path, metavar="FILE", help="measure nothing: the table of earlier runs")
    chosen = parser.parse_args(arguments)
    if (chosen.data is None) == (chosen.report is None):
        parser.error("give --data DIR, or --report FILE")
    return chosen


@dataclasses.dataclass(frozen=True)
class Work:
    prompt_tokens: int
    width: int
    clients: int      # requests at the same time

    @property
    def name(self):
        return f"{self.prompt_tokens} tokens, W = {self.width}, {self.clients} client{'s' * (self.clients > 1)}"


class Recommender(Coppice):
    """A cluster with or without a catalogue. Its width and n may be as large as the largest of the works."""
    most_repeated = None

    def __init__(self, name, data, work, arguments, draft, catalogue):
        super().__init__(data / "target", work, arguments.threads, draft, arguments.timeout, name)
        self.catalogue, self.widest = catalogue, max(arguments.widths)

    def flags(self):
        return {"coordinator": [f"--max_beam_width={self.widest}", f"--max_n={self.widest}"]}

    def tables(self):
        return ["[catalogues]", f"{CATALOGUE} = \"{self.catalogue}\""] if self.catalogue else []

    def recommend(self, prompts, width, tokens):
        """(seconds, [seconds of each], [sequences of each prompt, best first]). With a catalogue, every choice must have an item."""
        bodies = [dict(self.body(ids, width, tokens), n=width) for ids in prompts]
        if self.catalogue:  # an item ends by itself
            bodies = [dict(body, catalogue=CATALOGUE, ignore_eos=False) for body in bodies]
        seconds, answers = self.answers(bodies)
        found = []
        for answer, _ in answers:
            for choice in answer["choices"]:
                if self.catalogue and "id" not in (choice.get("item") or {}):
                    raise EngineError(f"{self.name}: a choice without an item: {choice}")
            found.append([choice["token_ids"] for choice in answer["choices"]])
        return seconds, [each for _, each in answers], found


class Other:
    """A peer as one of these engines. most_repeated: of tokens of prompts times beams, or None (peers.toml)."""

    def __init__(self, peer, most_repeated):
        self.peer, self.name, self.most_repeated = peer, peer.name, most_repeated

    def start(self, kind):
        self.peer.start(kind)
        self.version = self.peer.version

    def recommend(self, prompts, width, tokens):
        answer = self.peer.ask(f"{len(prompts)} prompts, width {width}", prompts=prompts, width=width, tokens=tokens, best=width)
        return answer["seconds"], [answer["seconds"]] * len(prompts), answer["ids"]

    def stop(self):
        self.peer.stop()


class Histories:
    """Prompts of random items, drawn from a seed."""

    def __init__(self, items, seed=1):
        self.items, self.draw = items, numpy.random.Generator(numpy.random.PCG64(seed))

    def take(self, count, tokens):
        """[ids of each]"""
        chosen = self.draw.integers(len(self.items), size=(count, tokens // self.items.shape[1]))
        return self.items[chosen].reshape(count, -1).tolist()


def agreement(sequences, expected):
    """(whether both are the same set, the share of the expected ones that are there)"""
    ours, theirs = set(map(tuple, sequences)), set(map(tuple, expected))
    return ours == theirs, len(ours & theirs) / len(theirs)


class Comparison:
    """All turns. An engine that fails is recorded as absent; the first must not fail."""

    def __init__(self, engines, arguments, items, records):
        self.engines, self.arguments, self.records = list(engines), arguments, records
        self.trie, self.histories, self.tokens = Trie(items), Histories(items), items.shape[1]
        self.reference = Reference(arguments.data / "target") if arguments.checked > 0 else None

    def leave_out(self, engine, error):
        if engine is self.engines[0]:
            raise error
        engine.stop()
        tell(f"{error}; it is left out")
        self.records.add(kind="absent", engine=engine.name, reason=str(error))
        self.engines.remove(engine)

    def start(self):
        for engine in list(self.engines):
            tell(f"loading {engine.name}")
            try:
                engine.start(self.arguments.type)
                self.records.add(kind="engine", engine=engine.name, version=engine.version)
            except EngineError as error:
                self.leave_out(engine, error)

    def able(self, work):
        """Those that are asked for this."""
        repeated = work.prompt_tokens * work.width * work.clients
        return [engine for engine in self.engines if engine.most_repeated is None or repeated <= engine.most_repeated]

    def ask(self, engine, work, turn, prompts):
        """The sequences of the first prompt. Records the answer, but not in turn 0, which warms up."""
        seconds, latencies, found = engine.recommend(prompts, work.width, self.tokens)
        counts = [len(sequences) for sequences in found]
        if counts != [min(work.width, len(self.trie.tokens[-1]))] * len(prompts):
            raise EngineError(f"{engine.name}: {work.name}: {counts} sequences")
        more = {}
        if isinstance(engine, Coppice) and work.clients == 1:
            more["repeat_s"] = engine.recommend(prompts, work.width, self.tokens)[0]
        if turn > 0:
            illegal = sum(not self.trie.legal(sequence) for sequences in found for sequence in sequences)
            self.records.add(kind="answer", **dataclasses.asdict(work), turn=turn, engine=engine.name, seconds=seconds, latencies_s=latencies,
                             returned=sum(counts), illegal=illegal, **more)
        return found[0]

    def measure(self, works):
        for turn in range(self.arguments.turns + 1):
            for work in works:
                tell(f"turn {turn} of {self.arguments.turns}: {work.name}")
                prompts, answers = self.histories.take(work.clients, work.prompt_tokens), {}
                order = self.able(work)
                random.Random(f"{turn} {work.name}").shuffle(order)
                for engine in order:
                    time.sleep(compare.SETTLE_S)
                    try:
                        answers[engine.name] = self.ask(engine, work, turn, prompts)
                    except EngineError as error:
                        self.leave_out(engine, error)
                if work.clients == 1 and 0 < turn <= self.arguments.checked:
                    self.check(work, turn, prompts[0], answers)

    def check(self, work, turn, prompt, answers):
        expected, _ = self.reference.search(self.reference.read(prompt), self.trie, work.width)
        for engine, sequences in answers.items():
            same, share = agreement(sequences, expected.tolist())
            self.records.add(kind="check", **dataclasses.asdict(work), turn=turn, engine=engine, same=same, share=round(share, 4))


def compiled(arguments, work):
    """The path of the compiled catalogue."""
    path = work / "items.catalogue"
    command = [COMPILER, "compile", f"--items={arguments.data / 'items.jsonl'}", f"--model={arguments.data / 'target'}", f"--output={path}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise EngineError(f"{COMPILER}: {error.strerror}: build coppice-catalogue") from error
    if done.returncode != 0:
        raise EngineError(f"coppice-catalogue: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}")
    return path


def coppices(arguments, work):
    catalogue, draft = compiled(arguments, work), arguments.data.resolve() / "draft"
    kinds = [("coppice", None, catalogue), ("coppice+drafts", None if arguments.no_drafts else draft, catalogue), ("coppice-free", None, None)]
    found = []
    for name, drafted, given in kinds:
        if name == "coppice" or drafted or (arguments.free and name == "coppice-free"):
            (work / name).mkdir()
            found.append(Recommender(name, arguments.data.resolve(), work / name, arguments, drafted, given))
    return found


def read_data(arguments):
    """The items. WorkloadError names what is missing or does not fit."""
    try:
        items = read_items(arguments.data / "items.jsonl")
    except OSError as error:
        raise WorkloadError(f"--data: {error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise WorkloadError(f"--data: {error}") from error
    for tokens in arguments.prompt_tokens:
        if tokens % items.shape[1]:
            raise WorkloadError(f"--prompt-tokens: {tokens} is no multiple of {items.shape[1]}, the tokens of an item")
    return items


def measure(arguments):
    items = read_data(arguments)
    works = [Work(*parts) for parts in ((tokens, width, clients) for tokens in arguments.prompt_tokens for width in arguments.widths
                                        for clients in arguments.clients)]
    with contextlib.ExitStack() as stack:
        records = compare.Records(arguments.json)
        stack.callback(records.close)
        work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coppice.recommendation.")))
        numpy.save(work / "items.npy", items)  # for peers with a trie
        arguments.model, arguments.text, arguments.tokens = arguments.data / "target", arguments.data / "items.jsonl", items.shape[1]
        records.add(kind="run", **compare.described(arguments, "lab/bench/recommendation/recommendation.py"), type=arguments.type,
                    items=len(items), turns=arguments.turns)
        known = environment.read_peers(arguments.table)
        engines = coppices(arguments, work)
        engines += [Other(peer, known[peer.name].get("most_repeated")) for peer in compare.prepared_peers(arguments, work, records)]
        for engine in engines:
            stack.callback(engine.stop)
        comparison = Comparison(engines, arguments, items, records)
        comparison.start()
        records.add(kind="load", when="before", load=os.getloadavg())
        comparison.measure(works)
        records.add(kind="load", when="after", load=os.getloadavg())
    return records.rows


def show(rows, markdown):
    lines = recommendation_table.lines(rows)
    print("\n".join(table.markdown_lines(lines) if markdown else table.aligned(lines)))
    for note in recommendation_table.notes(rows):
        print(note)
    sys.stdout.flush()


def main():
    arguments = parse_arguments()
    compare.run(lambda: show(table.read_records(arguments.report) if arguments.report else measure(arguments), arguments.markdown), tell)


if __name__ == "__main__":
    main()
