#!/usr/bin/env python3
"""Measures Coppice and other engines with many clients at a time: total tokens per second, time to the first token and between tokens.

  deploy/models.sh get smollm2                              # prints target: FILE and draft: DIR
  deploy/models.sh convert FILE                             # prints target: DIR, which every peer can be given
  lab/bench/peers/load.py --model DIR --draft DIR --json load.jsonl --svg load.svg           # 25 minutes
  lab/bench/peers/load.py --model DIR --draft DIR --quick                                    # 5
  lab/bench/peers/load.py --report load.jsonl --markdown --svg load.svg

Coppice is a cluster that deploy/cluster.sh starts, and is swept over clients, widths (1 is greedy, more a beam search) and, with --draft,
drafts none and auto. Peers are greedy. Each client sends its next request when the last one has ended. Prompts have --prompt-tokens, the
first two drawn at random, the others from --text, so no prefix cache has them; answers have half to one and a half times --tokens.
coppice-loadgen is the clients of a server; a peer without one is asked in its process (answering.py), so that HTTP costs it nothing.
The engines are loaded one after another. A point with more clients or beams gets more of the time, and its first quarter is not counted. In
less than an answer's time nothing can be said: then a line begins with TOO SHORT.

The total rate should never fall as clients are added: where it does, a line begins with FALLS. "Between tokens" is the time from one event of
a stream to the next; with drafts and in beams an event has several tokens.

Needs the standard library alone, and for the peers what compare.py needs. Exit status 1 if Coppice does not run, 2 for wrong arguments,
130 after Ctrl-C.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import compare  # noqa: E402
import environment  # noqa: E402
import load_figures  # noqa: E402
import load_plot  # noqa: E402
import table  # noqa: E402
from engines import ROOT, Coppice, EngineError, Peer  # noqa: E402
from workload import WorkloadError, read_text, read_types  # noqa: E402

LOADGEN = pathlib.Path(os.environ.get("COPPICE_BIN", ROOT / "build/release/bin")) / "coppice-loadgen"
QUICK = {"minutes": 5, "clients": "1,8,64", "peer_clients": "1,64"}
LOADING_S = 25            # set aside for each engine that is not loaded yet
WARM_UP_S = 3             # with the most clients, not counted
BETWEEN_POINTS_S = 1.5    # a load generator starts and ends
SHORTEST_S = 3
NOT_COUNTED = 0.25        # of a point's time, from its beginning
ANSWERS_PER_S = 100       # no engine gives more in its process; then prompts repeat


def tell(text):
    print(f"load: {text}", file=sys.stderr, flush=True)


def numbers(text):
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = [0]
    if found[0] < 1:
        raise argparse.ArgumentTypeError(f"expected numbers from 1 on with commas, got '{text}'")
    return found


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, metavar="DIR", help="Hugging Face folder of Llama architecture, or a GGUF file")
    parser.add_argument("--draft", type=pathlib.Path, metavar="DIR", help="its draft model; without one, no drafts")
    parser.add_argument("--type", help="weights: f32, bf16, int8 or int4 (int8); a GGUF file keeps its own")
    parser.add_argument("--peers", metavar="NAMES", help="of the table of peers, with commas; none: Coppice alone; default: those with many = true")
    parser.add_argument("--table", type=pathlib.Path, default=HERE / "peers.toml", metavar="FILE", help="another table of peers")
    parser.add_argument("--clients", type=numbers, default="1,2,4,8,16,32,64", help="at a time, of Coppice (%(default)s)")
    parser.add_argument("--peer-clients", type=numbers, default="1,4,16,64", help="at a time, of a peer (%(default)s)")
    parser.add_argument("--widths", type=numbers, default="1,4", help="of Coppice (%(default)s)")
    parser.add_argument("--minutes", type=float, default=25, help="that the whole takes, without installing peers (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="five minutes: --clients 1,8,64 --peer-clients 1,64")
    parser.add_argument("--threads", type=compare.at_least_one, default=2, help="of each engine (%(default)s)")
    parser.add_argument("--tokens", type=compare.at_least_one, default=32, help="of an answer, in the mean (%(default)s)")
    parser.add_argument("--prompt-tokens", type=compare.at_least_one, default=64, help="of each prompt (%(default)s)")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "docs/decisions.md", metavar="FILE",
                        help="where prompts are from (docs/decisions.md)")
    parser.add_argument("--venv", type=pathlib.Path, default=environment.cache_folder(), metavar="DIR",
                        help="the peers' virtual environment, made if it is missing (%(default)s)")
    parser.add_argument("--python", metavar="PROGRAM", help="a Python that has the peers' packages: nothing is installed")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one answer, or for a model to load (%(default)s)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="JSON lines: a record for each point; the file must not exist")
    parser.add_argument("--svg", type=pathlib.Path, metavar="FILE", help="the plot")
    parser.add_argument("--markdown", action="store_true", help="the table in Markdown")
    parser.add_argument("--report", nargs="+", type=pathlib.Path, metavar="FILE", help="measure nothing: the table of earlier runs")
    given, _ = parser.parse_known_args(arguments)
    if given.quick:
        parser.set_defaults(**QUICK)
    chosen = parser.parse_args(arguments)
    if (chosen.model is None) == (chosen.report is None):
        parser.error("give --model DIR, or --report FILE")
    return chosen


class Prompts:
    """Prompts of one length and lengths of answers, drawn from a seed. No two prompts begin alike."""

    def __init__(self, ids, first, length, tokens, seed=1):
        """ids: of the text. first: the special ids that every prompt begins with."""
        self.ids, self.first, self.own, self.tokens, self.draw = ids, first, length - len(first) - 2, tokens, random.Random(seed)
        self.words, self.seen = sorted(set(ids)), set()
        if self.own < 1 or len(ids) < self.own or len(self.words) < 100:
            raise WorkloadError(f"--text: {len(ids)} tokens are no source of prompts of {length}; name a longer text")

    def take(self, count):
        """([ids of a prompt], [tokens of its answer])"""
        prompts = []
        while len(prompts) < count:
            start = tuple(self.draw.choices(self.words, k=2))
            if len(self.seen) < len(self.words) ** 2 // 2:
                if start in self.seen:
                    continue
                self.seen.add(start)
            begin = self.draw.randrange(len(self.ids) - self.own + 1)
            prompts.append([*self.first, *start, *self.ids[begin:begin + self.own]])
        return prompts, [self.draw.randint(max(1, self.tokens // 2), self.tokens * 3 // 2) for _ in prompts]


class Point:
    def __init__(self, engine, drafts, width, clients):
        self.engine, self.drafts, self.width, self.clients = engine, drafts, width, clients

    @property
    def weight(self):
        """Its share of the time. Answers of many clients and beams take longer."""
        return 1 + self.clients * self.width / 64

    @property
    def name(self):
        return f"{load_figures.label((self.engine.name, self.drafts, self.width))}, {self.clients} client{'s' * (self.clients > 1)}"

    def fields(self):
        """Of a request's body beside prompt, lengths and stream."""
        if not isinstance(self.engine, Coppice):
            return {"temperature": 0, "ignore_eos": True}
        body = self.engine.body([], self.width, 1)
        for name in ("prompt", "max_tokens", "return_token_ids"):
            del body[name]
        return dict(body, speculative="auto" if self.drafts == "auto" else False)


def requests_of(result):
    """The requests of a result of coppice-loadgen. It counts the events of those that were cut; only a whole answer has `tokens`."""
    requests = []
    for sent, first, gaps, tokens, error in zip(*(result[key] for key in ("start_times", "ttfts", "itls", "output_lens", "errors"))):
        times = [] if first is None else [sent + first]
        for gap in gaps:
            times.append(times[-1] + gap)
        requests.append({"sent_s": sent, "times_s": times, "tokens": None if error else tokens})
    return requests


def ask_server(url, point, seconds, prompts, lengths, work):
    """The requests of a point, by coppice-loadgen."""
    rows, result = work / "prompts.jsonl", work / "result.json"
    rows.write_text("".join(json.dumps({"prompt": ids, "output_tokens": tokens}) + "\n" for ids, tokens in zip(prompts, lengths)))
    command = [LOADGEN, f"--base-url={url}", "--dataset-name=custom", f"--dataset-path={rows}", f"--max-concurrency={point.clients}",
               f"--benchmark-duration={seconds:.2f}", "--benchmark-grace-period=0", "--max-failed=0", f"--extra-body={json.dumps(point.fields())}",
               "--save-result", "--save-detailed", f"--result-dir={work}", f"--result-filename={result.name}"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise EngineError(f"{point.name}: coppice-loadgen: {(done.stderr.strip() or done.stdout.strip() or 'no reason').splitlines()[-1]}")
    return requests_of(json.loads(result.read_text(encoding="utf8")))


def ask_peer(point, seconds, prompts, lengths):
    """The requests of a point, in the process of the peer: an event for each token."""
    requests = point.engine.ask(point.name, clients=point.clients, seconds=seconds, prompts=prompts, lengths=lengths)["requests"]
    return [dict(request, tokens=lengths[i % len(lengths)] if len(request["times_s"]) == lengths[i % len(lengths)] else None)
            for i, request in enumerate(requests)]


class Sweep:
    """All points, each engine loaded while its own are measured, in random order. They share the time that is left by their weights."""

    def __init__(self, arguments, kind, records, work, text):
        self.arguments, self.kind, self.records, self.work, self.text = arguments, kind, records, work, text
        self.ends_at, self.prompts = time.monotonic() + arguments.minutes * 60, None

    def seconds(self, point, points_after, engines_after):
        """Of the next point. points_after: of this engine and of those that are loaded after it."""
        left_s = self.ends_at - time.monotonic() - LOADING_S * engines_after - BETWEEN_POINTS_S * (1 + len(points_after))
        return max(SHORTEST_S, left_s * point.weight / sum(each.weight for each in (point, *points_after)))

    def ask(self, point, seconds):
        url = point.engine.server.url if isinstance(point.engine, Coppice) else point.engine.url
        prompts, lengths = self.prompts.take(int(seconds * ANSWERS_PER_S))
        return ask_server(url, point, seconds, prompts, lengths, self.work) if url else ask_peer(point, seconds, prompts, lengths)

    def measure(self, point, seconds):
        found = load_figures.point_figures(self.ask(point, seconds), NOT_COUNTED * seconds, seconds)
        if found["tokens_per_s"] == 0:
            raise EngineError(f"{point.name}: no token in {seconds:.0f} s")
        self.records.add(kind="point", engine=point.engine.name, drafts=point.drafts, width=point.width, clients=point.clients,
                         seconds=round(seconds, 1), **found)
        return found

    def run(self, plan):
        """plan: [(engine, its points)]. An engine that fails is recorded as absent, but for the first, which must not fail."""
        for number, (engine, points) in enumerate(plan):
            tell(f"loading {engine.name}")
            try:
                engine.start(self.kind)
                self.records.add(kind="engine", engine=engine.name, type=self.kind, version=engine.version)
                if self.prompts is None:
                    self.prompts = Prompts(*engine.tokens_of(self.text), self.arguments.prompt_tokens, self.arguments.tokens)
                self.ask(max(points, key=lambda point: point.clients), WARM_UP_S)
                left = random.Random(engine.name).sample(points, len(points))
                later = plan[number + 1:]
                while left:
                    point = left.pop()
                    seconds = self.seconds(point, [*left, *(other for _, more in later for other in more)], len(later))
                    found = self.measure(point, seconds)
                    left_s = max(0, self.ends_at - time.monotonic())
                    tell(f"{point.name}: {found['tokens_per_s']:.0f} tokens/s in {seconds:.0f} s; {left_s / 60:.1f} minutes left")
            except EngineError as error:
                if number == 0:
                    raise
                tell(f"{error}; it is left out")
                self.records.add(kind="absent", engine=engine.name, reason=str(error))
            finally:
                engine.stop()


def planned(arguments, work, records):
    """[(engine, its points)], Coppice first."""
    ours = Coppice(arguments.model.resolve(), work, arguments.threads, arguments.draft and arguments.draft.resolve(), arguments.timeout)
    drafts = ["none", "auto"] if arguments.draft else ["none"]
    plan = [(ours, [Point(ours, kind, width, clients) for kind in drafts for width in arguments.widths for clients in arguments.clients])]
    known = environment.read_peers(arguments.table)
    able = [name for name in known if known[name].get("many")]
    if arguments.peers is None:
        arguments.peers = ",".join(able) or "none"
    for name in arguments.peers.split(","):
        if name in known and name not in able:
            raise WorkloadError(f"--peers: {name} is not measured with many clients, expected some of {','.join(able)}, or none")
    return plan + [(peer, [Point(peer, "none", 1, clients) for clients in arguments.peer_clients])
                   for peer in compare.prepared_peers(arguments, work, records)]


def measure(arguments):
    if arguments.type is None and arguments.model.suffix != ".gguf":
        arguments.type = "int8"
    kind, text = read_types(arguments.type, arguments.model)[0], read_text(arguments.text)
    if not LOADGEN.is_file():
        raise EngineError(f"{LOADGEN} is missing: build coppice-loadgen")
    records = compare.Records(arguments.json)
    try:
        with tempfile.TemporaryDirectory(prefix="coppice.load.") as folder:
            records.add(kind="run", type=kind, **compare.described(arguments, "lab/bench/peers/load.py"))
            plan = planned(arguments, pathlib.Path(folder), records)
            records.add(kind="load", when="before", load=os.getloadavg())
            Sweep(arguments, kind, records, pathlib.Path(folder), text).run(plan)
            records.add(kind="load", when="after", load=os.getloadavg())
    finally:
        records.close()
    return records.rows


def read_runs(paths):
    """The records of earlier runs, which must be of one type of weights and have points."""
    rows = table.read_records(paths)
    types = sorted({row.get("type", "") for row in rows if row["kind"] == "run"})
    if len(types) > 1:
        raise WorkloadError(f"--report: runs of {' and '.join(types)} have tables of their own")
    if not any(row["kind"] == "point" for row in rows):
        raise WorkloadError(f"--report: {', '.join(map(str, paths))}: no points of load.py")
    return rows


def show(rows, arguments):
    lines = load_figures.lines(rows)
    print("\n".join(table.markdown_lines(lines) if arguments.markdown else table.aligned(lines)))
    for note in load_figures.notes(rows):
        print(note)
    sys.stdout.flush()
    if arguments.svg:
        arguments.svg.write_text(load_plot.draw(rows), encoding="utf8")


def main():
    arguments = parse_arguments()
    compare.run(lambda: show(read_runs(arguments.report) if arguments.report else measure(arguments), arguments), tell)


if __name__ == "__main__":
    main()
