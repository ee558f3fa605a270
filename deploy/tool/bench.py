#!/usr/bin/env python3
"""Measures a running cluster with coppice-loadgen: the same requests with drafts and without, in turns. Prints a short table.

A FILE of prompts has a line {"prompt": ..., "output_tokens": ..., "body": {...}} for each, of which only the prompt must be there
(the dataset `custom` of coppice-loadgen). By default the demo's pair gets the demo's questions, and other models a few everyday ones,
as chats if the model has a chat template. What comes after -- are further flags of coppice-loadgen.
Request k has seed k both times, so with a method that is reproducible, as the default ones are, both answers are the same text.

Exit status 1 if the server does not answer or requests fail, 2 if an argument or the file cannot be used.
"""
import argparse
import http.client
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile

DEPLOY = pathlib.Path(__file__).resolve().parents[1]
sys.path[1:1] = [str(DEPLOY), str(DEPLOY / "launch")]
import api_connection  # noqa: E402
import installation  # noqa: E402

DEMO_MODELS = ("text2sql", "wikisql-target")
QUESTIONS, PROMPTS = DEPLOY / "demo/questions.jsonl", DEPLOY / "tool/prompts.jsonl"
WAYS = {False: "without drafts", True: "with drafts"}


class Failed(Exception):
    """Ends the program with its message and status 1."""


def served_model(server):
    """(name, whether it chats) of the first model."""
    connection = server.connect(timeout_s=30)
    try:
        connection.request("GET", "/v1/models", headers=server.headers)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise Failed(f"{server.url} does not answer: {error!r}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise Failed(f"{server.url}/v1/models: {answer.status} {text.strip()}")
    try:
        model = json.loads(text)["data"][0]
        return str(model["id"]), bool(model["capabilities"]["chat"])
    except (ValueError, LookupError, TypeError) as error:
        raise Failed(f"{server.url}/v1/models: expected the models of a Coppice server") from error


def loadgen_line(args, server, prompts, chats, drafts, count, result):
    """The command line of one run, which writes its result to a file."""
    body = {"speculative": "auto" if drafts else False}
    return [os.path.join(installation.program_folder(), "coppice-loadgen"), f"--base-url={server.url}",
            f"--endpoint=/v1/{'chat/' if chats else ''}completions", "--dataset-name=custom", f"--dataset-path={prompts}",
            f"--num-prompts={count}", f"--max-concurrency={args.concurrency}", f"--output-len={args.tokens}",
            f"--extra-body={json.dumps(body)}", *(["--use-beam-search", f"--beam-width={args.beams}"] if args.beams else []),
            "--save-result", "--save-detailed", "--save-texts", f"--result-dir={result.parent}", f"--result-filename={result.name}",
            *args.flags]


def measure(line, environment, result):
    """The result of one run. Failed if there is none."""
    try:
        run = subprocess.run(line, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Failed(f"{line[0]}: {error.strerror}") from error
    if run.returncode == 2:
        raise api_connection.Fault((run.stderr.strip() or run.stdout.strip()).splitlines()[0])
    if run.returncode != 0:
        said = run.stderr.strip().splitlines() or run.stdout.strip().splitlines()[-1:]
        raise Failed("\n".join(said or [f"coppice-loadgen ended with status {run.returncode}"]))
    return json.loads(result.read_text(encoding="utf8"))


def median_ms(runs, key):
    values = [value for run in runs for value in run[key] if value is not None]
    return f"{1000 * statistics.median(values):.1f}" if values else "-"


def per_token(run):
    """Seconds for each token after the first, of each request that has some."""
    return [(latency - first) / (length - 1) for latency, first, length in zip(run["latencies"], run["ttfts"], run["output_lens"])
            if length > 1 and latency is not None and first is not None]


def per_second(runs, key):
    return sum(run[key] for run in runs) / sum(run["duration"] for run in runs)


def efficiency(runs):
    values = [run["block_efficiency"] for run in runs if run.get("block_efficiency")]
    return f"{statistics.mean(values):.2f}" if values else "-"


def show(results):
    rows = [("requests/s", lambda runs: f"{per_second(runs, 'completed'):.2f}"),
            ("tokens/s", lambda runs: f"{per_second(runs, 'total_output_tokens'):.1f}"),
            ("first token, ms", lambda runs: median_ms(runs, "ttfts")),
            ("each further token, ms", lambda runs: median_ms([dict(each=per_token(run)) for run in runs], "each")),
            ("whole answer, ms", lambda runs: median_ms(runs, "latencies")),
            ("tokens per pass", efficiency)]
    print(f"\n{'':<24}{WAYS[False]:>16}{WAYS[True]:>16}")
    for name, value in rows:
        print(f"{name:<24}{value(results[False]):>16}{value(results[True]):>16}")


def conclude(results):
    """What the table says, in sentences."""
    drafted = sum(run.get("spec_decode_draft_tokens") or 0 for run in results[True])
    if not drafted:
        return "No request was drafted for: the cluster has no draft node, or drafts do not pay here."
    ratio = per_second(results[True], "total_output_tokens") / per_second(results[False], "total_output_tokens")
    pairs = [(one, other) for runs in zip(results[False], results[True]) for one, other in zip(*(run["generated_texts"] for run in runs))]
    differ = sum(one != other for one, other in pairs)
    same = "all answers are the same" if not differ else f"{differ} of {len(pairs)} answers differ"
    return f"{ratio:.2f} times as many tokens per second with drafts; {same}. Times are medians."


def bench(args):
    server = api_connection.Server(args)
    name, chats = served_model(server)
    demo = name in DEMO_MODELS
    prompts = args.prompts or (QUESTIONS if demo else PROMPTS)
    chats = chats and not demo
    environment = dict(os.environ, **({"OPENAI_API_KEY": args.api_key} if args.api_key else {}),
                       **({"SSL_CERT_FILE": os.path.abspath(args.cert)} if args.cert else {}))
    print(f"bench: {name} at {server.url}: {args.requests} {'chats' if chats else 'completions'} of at most {args.tokens} tokens, "
          f"{args.concurrency} at a time, {args.turns} turns", flush=True)
    results = {drafts: [] for drafts in WAYS}
    with tempfile.TemporaryDirectory(prefix="coppice.bench.") as folder:
        result = pathlib.Path(folder, "result.json")

        def run(drafts, count):
            return measure(loadgen_line(args, server, prompts, chats, drafts, count, result), environment, result)

        for drafts in WAYS:  # fills the prefix cache; the server learns what its passes cost and how good drafts are
            run(drafts, min(args.requests, 8))
        for turn in range(args.turns):
            for drafts in WAYS if turn % 2 == 0 else reversed(WAYS):
                results[drafts].append(run(drafts, args.requests))
                print(f"bench: turn {turn + 1} of {args.turns}, {WAYS[drafts]}: "
                      f"{per_second(results[drafts][-1:], 'total_output_tokens'):.1f} tokens/s", flush=True)
    show(results)
    print(f"\n{conclude(results)}")


def positive(text):
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number of at least 1, got '{text}'")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="coppice bench",
                                     usage="%(prog)s [OPTION...] [-- FLAG...]")
    api_connection.add_options(parser)
    parser.add_argument("--prompts", metavar="FILE", help="JSON lines; see above")
    parser.add_argument("--requests", type=positive, default=16, metavar="N", help="requests of each run [%(default)s]")
    parser.add_argument("--concurrency", type=positive, default=1, metavar="N", help="requests at a time, at most [%(default)s]")
    parser.add_argument("--tokens", type=positive, default=64, metavar="N", help="tokens of an answer, at most [%(default)s]")
    parser.add_argument("--beams", type=positive, metavar="N", help="beam search with so many beams")
    parser.add_argument("--turns", type=positive, default=2, metavar="N", help="runs with drafts, and as many without [%(default)s]")
    own, flags = sys.argv[1:], []
    if "--" in own:
        flags, own = own[own.index("--") + 1:], own[:own.index("--")]
    args = parser.parse_args(own)
    args.flags = flags
    bench(args)


def end_by_signal(number, _):
    """A signal ends the program as an exception does, so that no file is left."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end_by_signal)
    try:
        main()
    except Failed as error:
        sys.exit("\n".join(f"bench: {line}" for line in str(error).splitlines()))
    except api_connection.Fault as fault:
        print(f"bench: {fault}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
