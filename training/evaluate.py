#!/usr/bin/env python3
"""Measures a served pair on a task: quality and speed of many settings (greedy, samples with a vote, beams, DSBD, MJSD, speculative beam
search), each with drafts and without. It starts a cluster of one replica and one draft node, or asks one that runs (--url).

  evaluate.py wikisql --data dev.jsonl.xz --questions 300 --json run.jsonl --plot run.svg
  evaluate.py translation --data dev.jsonl --target DIR --draft DIR
  evaluate.py prompts --data question.jsonl --target DIR --draft DIR --chat
  evaluate.py report --json run.jsonl        the table and the plot of a run, once more

wikisql      lines {"prompt", "completion"} or {"question", "columns", "sql"}; the figure is the exact match, with its 95 % interval.
translation  lines {"prompt", "completion"}; the figure is BLEU of all answers together. Needs the Python module sacrebleu.
prompts      lines {"prompt"} or {"turns"}, and "category"; the figure is the log-likelihood of the answer under the target, per token.

Settings are the table training/evaluation/settings.toml. All variants of a question are asked one after another in random order, so
that a drift of the machine hits all alike. With --json, a run that was interrupted goes on where it was. Only plots and translation
need more than the standard library. Exit status 1 if a request fails or the cluster does not start, 2 for wrong arguments or data, 130 after Ctrl-C,
143 after SIGTERM.
"""
import argparse
import contextlib
import hashlib
import os
import pathlib
import signal
import sys

from evaluation import plot, records, report, server, settings, tasks
from evaluation.measure import Run
from evaluation.sql_format import sql_grammar

DEMO = server.ROOT / "deploy/demo"
FAULTS = (tasks.DataError, settings.SettingsError, records.RecordError, plot.PlotError)


def tell(text):
    print(f"evaluate: {text}", file=sys.stderr, flush=True)


def at_least_one(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {value}")
    return value


def add_outputs(parser, json_is_needed):
    parser.add_argument("--json", type=pathlib.Path, required=json_is_needed, metavar="FILE", help="JSON lines: a record for each answer")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE", help="quality against tokens per second of the settings that the table names, as .svg or .png (needs matplotlib)")
    parser.add_argument("--overview", type=pathlib.Path, metavar="FILE",
                        help="a bar for each named setting: its quality and its time (needs matplotlib)")
    parser.add_argument("--against", metavar="NAME", help="also compare every setting with this one, question by question (wikisql, translation)")
    parser.add_argument("--by-category", action="store_true", help="also a table for each category")
    parser.add_argument("--category-table", action="store_true", help="also one table with a row for each category")
    parser.add_argument("--markdown", action="store_true", help="tables in Markdown")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="task", required=True, metavar="TASK")
    written = commands.add_parser("report", help="the table of a file that a run has written")
    written.add_argument("--settings", default="", metavar="NAMES", help="only these settings; names with commas")
    add_outputs(written, True)
    for task in tasks.TASKS:
        run = commands.add_parser(task, help=f"run the task {task}")
        run.add_argument("--data", required=True, type=pathlib.Path, help="JSON lines, also as .xz")
        run.add_argument("--questions", type=at_least_one, default=200, help="how many, drawn at random (%(default)s)")
        run.add_argument("--sample-seed", type=int, default=0, help="which are drawn")
        run.add_argument("--settings", default="", metavar="NAMES", help="names with commas; default: all of the table")
        run.add_argument("--table", type=pathlib.Path, default=settings.TABLE, help="another table of settings")
        run.add_argument("--variants", default="plain,drafted",
                         help="of plain, drafted and auto (drafts as the server chooses); %(default)s")
        run.add_argument("--max-tokens", type=at_least_one, default=128 if task == "prompts" else 64)
        run.add_argument("--seed", type=int, default=1)
        run.add_argument("--parallel", type=at_least_one, default=1, help="requests of a setting that are sent at a time (%(default)s)")
        run.add_argument("--timeout", type=float, default=600, help="seconds for a request (%(default)s)")
        run.add_argument("--url", help="a cluster that runs; default: start one")
        run.add_argument("--api-key", default=os.environ.get("COPPICE_API_KEY"), help="default: $COPPICE_API_KEY")
        run.add_argument("--target", type=pathlib.Path, default=DEMO / "wikisql-target", help="default: the demo's")
        run.add_argument("--draft", type=pathlib.Path, default=DEMO / "wikisql-draft", help="default: the demo's")
        run.add_argument("--tp", type=at_least_one, default=1, help="ranks of the replica")
        run.add_argument("--threads", type=int, default=1, help="of each process that is started; 0: all cores (%(default)s)")
        run.add_argument("--dtype", default="auto", help="of both models (%(default)s: as in their files)")
        run.add_argument("--worker-flag", action="append", default=[], help="a further flag of the worker; may be repeated")
        run.add_argument("--draft-flag", action="append", default=[], help="a further flag of the draft node; may be repeated")
        run.set_defaults(chat=False)
        if task == "prompts":
            run.add_argument("--chat", action="store_true", help="send prompts as messages of a chat")
        add_outputs(run, False)
    return parser.parse_args()


def described(arguments, wanted, target):
    """The record that says what is run."""
    try:
        digest = hashlib.sha256(arguments.data.read_bytes()).hexdigest()
    except OSError as error:
        raise tasks.DataError(f"{arguments.data}: {error.strerror}") from error
    cluster = "url" if arguments.url else {"tp": arguments.tp, "threads": arguments.threads, "dtype": arguments.dtype,
                                           "worker_flags": arguments.worker_flag, "draft_flags": arguments.draft_flag}
    return {"kind": "run", "format_version": 1, "cluster": cluster, "task": arguments.task, "data": arguments.data.name, "data_sha256": digest,
            "questions": arguments.questions, "sample_seed": arguments.sample_seed, "seed": arguments.seed, "chat": arguments.chat,
            "max_tokens": arguments.max_tokens, "parallel": arguments.parallel, **target,
            "variants": {variant.name: variant.body() for variant in wanted},
            "labels": {v.name: [v.setting.label, v.setting.named, v.kind] for v in wanted}}


def show(rows, arguments):
    """Tables to stdout, the plot to its file."""
    if not any(row["kind"] == "answer" for row in rows):
        return
    print("\n".join(report.lines(rows, arguments.markdown)))
    if arguments.by_category:
        for category in sorted({row["category"] for row in rows if row["kind"] == "answer"}):
            print(f"\n{category or 'no category'}\n" + "\n".join(report.lines(rows, arguments.markdown, category)))
    if arguments.category_table:
        print("\n" + "\n".join(report.category_lines(rows, arguments.markdown)))
    if arguments.against:
        if rows[0]["task"] == "prompts" or arguments.against not in report.summaries(rows):
            raise settings.SettingsError(f"--against: {arguments.against} has no answers to compare with references")
        print("\n" + "\n".join(report.comparison_lines(rows, arguments.against, arguments.markdown)))
    sys.stdout.flush()
    for warning in report.warnings(rows):
        tell(warning)
    for path, overview in ((arguments.plot, False), (arguments.overview, True)):
        if path:
            plot.save(rows, path, overview)
            tell(f"{path} is written")


def measure(arguments):
    kinds = arguments.variants.split(",")
    unknown = [kind for kind in kinds if kind not in settings.KINDS]
    if unknown:
        raise settings.SettingsError(f"--variants: unknown '{unknown[0]}', expected some of {','.join(settings.KINDS)}")
    wanted = settings.variants(settings.read_settings(arguments.table, [name for name in arguments.settings.split(",") if name]), kinds)
    checked = [variant.setting.name for variant in wanted if variant.setting.choose == "any"]
    if checked and arguments.task != "wikisql":
        raise settings.SettingsError(f"{checked[0]}: choose = \"any\" is for answers that are right or wrong, so not for {arguments.task}")
    formatted = [variant.setting.name for variant in wanted if variant.setting.format]
    if formatted and arguments.task != "wikisql":
        raise settings.SettingsError(f"{formatted[0]}: format = \"sql\" is for wikisql, so not for {arguments.task}")
    if not wanted:
        raise settings.SettingsError("nothing to measure: the settings have no such variants")
    questions = tasks.sample_questions(tasks.read_questions(arguments.data, arguments.task), arguments.questions, arguments.sample_seed)
    for question in questions if formatted else ():
        if sql_grammar(question.prompt) is None:
            raise tasks.DataError(f"{arguments.data}:{question.line}: {formatted[0]} needs a prompt \"columns: ...\\nquestion: ...\\nsql:\"")
    tasks.need_modules(arguments.task)
    if arguments.plot or arguments.overview:
        plot.load_pyplot()  # before an hour of measuring
    if arguments.json:
        records.check_writable(arguments.json)
    with contextlib.ExitStack() as stack:
        url = arguments.url
        if not url:
            tell("starting the cluster")
            url = stack.enter_context(server.started(arguments, drafts=kinds != ["plain"]))
        target = server.Server(url, arguments.timeout, arguments.api_key)
        file = records.RecordFile(arguments.json, described(arguments, wanted, target.identity()))
        stack.callback(file.close)
        tell(f"{len(questions)} questions, {len(wanted)} variants")
        try:
            Run(target, arguments.task, questions, wanted, arguments, file, tell).measure()
        except (KeyboardInterrupt, SystemExit, server.ServerError):
            if arguments.json:
                tell(f"interrupted; the same command goes on from {arguments.json}")
            raise
    return file.rows


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts a command with & ignores it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if arguments.task == "report":
            try:
                rows, _ = records.read_records(arguments.json)
            except OSError as error:
                raise records.RecordError(f"{arguments.json}: {error.strerror}") from error
            if not rows:
                raise records.RecordError(f"{arguments.json}: is empty")
            rows = report.only(rows, [name for name in arguments.settings.split(",") if name])
        else:
            rows = measure(arguments)
        show(rows, arguments)
    except FAULTS as fault:
        tell(fault)
        sys.exit(2)
    except server.ServerError as error:
        tell(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
