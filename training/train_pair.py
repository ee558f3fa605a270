#!/usr/bin/env python3
"""Trains a target and a draft model that share a tokenizer, from JSON lines {"prompt": ..., "completion": ...}. Writes them
as Hugging Face Llama folders (with --save-dtype int8, for Coppice alone), which coppice-worker and coppice-draft can load.

  train_pair.py tokenizer --data train.jsonl --out DIR [--vocab 4096]
  train_pair.py cut       --data train.jsonl --source DIR --out DIR [--distilled TRAINED] [--layers 0,1,2,3] [--vocab 4608]
                          what is left of a trained model for a task: some layers, and the ids that the data needs most
  train_pair.py grow      --start DIR --out DIR --after 1,2    more layers, which change nothing until they are trained
  train_pair.py invent    --data train.jsonl --target DIR --out FILE [--rows 50000]
                          more rows for distill, which a target writes that was trained on the data
  train_pair.py mean      --out DIR TRAINED TRAINED ...        the mean of models that were trained from one another
  train_pair.py model     --data train.jsonl --tokenizer DIR/tokenizer.model --out DIR [--hidden 384 --layers 6 ...]
  train_pair.py model     --data train.jsonl --tokenizer CUT/tokenizer.json --start CUT --out DIR
  train_pair.py distill   --data train.jsonl --target DIR --out DIR     a draft, from the distributions of a target
  train_pair.py pair      --data train.jsonl --out DIR [--target-minutes 120 --draft-minutes 30]
                          tokenizer, model, distill -> DIR/NAME-target and DIR/NAME-draft (--name, default wikisql)
  train_pair.py compare   --data dev.jsonl --target DIR --draft DIR     mean overlap and greedy agreement of a pair

The NOTE files in deploy/demo say how its models were made. In the loss, tokens of completions have weight 1 and tokens
of prompts 0.1. Rows with the same first line share its computation. Training stops when the given time is over; every few minutes it
writes a checkpoint and the model as it is, and the same command goes on from there after an interruption. --held-out FILE shows with
each checkpoint how many of its rows greedy decoding gets right.

--copy-case PATTERN: values in completions that the prompt has in another case take the prompt's spelling, for tasks whose answers
are compared without case. The first group of the regular expression that takes part in a match is the value.

--vary: against learning rows by heart, where prompts begin with a line "name: item, item, ...". In each epoch, rows get other
values (of --copy-case) in prompt and completion, lists of items lose some that the completion does not name, and get others.
distill trains on one such epoch (--variations: on several), as --seed draws it.

Needs PyTorch (2.4 or later), NumPy and SentencePiece for Python: pip install torch numpy
sentencepiece; with a tokenizer.json tokenizers instead of the last. If its memory grows, start it with jemalloc (LD_PRELOAD).
Nothing else in Coppice needs them. Exit status: 2 for wrong arguments or data, 130 after Ctrl-C, 143 after SIGTERM.
"""
import argparse
import os
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "deploy/models"))
from pair_training import data, tokenizer  # noqa: E402
from tool_arguments import ArgumentFault, add_cluster_options, add_dtype, dtype_of, missing_modules, need_modules, numbers, positive

TARGET = dict(hidden=384, layers=6, heads=6, ffn=1024)
DRAFT = dict(hidden=128, layers=2, heads=4, ffn=352)


def train_tokenizer(args, out):
    """Trains a SentencePiece BPE model with byte fallback. A line feed is a separate token. Digits are split."""
    import sentencepiece
    path = os.path.join(out, "tokenizer.model")
    if os.path.exists(path):
        print(f"train_pair: {path}: is there already", flush=True)
        return path
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        with open(os.path.join(folder, "text"), "w", encoding="utf8") as corpus:
            for prompt, completion in data.read_rows(args.data, args.copy_case):
                corpus.writelines(part + "\n" for part in (prompt + completion).split("\n"))
        try:
            sentencepiece.SentencePieceTrainer.train(
                input=corpus.name, model_prefix=os.path.join(folder, "tokenizer"), vocab_size=args.vocab, model_type="bpe",
                byte_fallback=True, character_coverage=0.9995, normalization_rule_name="identity",
                user_defined_symbols=["\n"], add_dummy_prefix=False, remove_extra_whitespaces=False, split_digits=True,
                unk_id=0, bos_id=data.BOS, eos_id=data.EOS, pad_id=-1, max_sentence_length=20000, minloglevel=2)
        except RuntimeError as error:
            raise data.DataError(f"{args.data}: no tokenizer of {args.vocab} pieces: {error}") from error
        os.replace(os.path.join(folder, "tokenizer.model"), path)
    print(f"train_pair: {path}: written", flush=True)
    return path


def shape_of(args, defaults):
    given = {name: getattr(args, name) for name in defaults if getattr(args, name)}
    if args.start and given:
        raise ArgumentFault(f"--{min(given)}: the shape is that of --start")
    shape = defaults | given
    if shape["hidden"] % (2 * shape["heads"]):
        raise ArgumentFault(f"--hidden {shape['hidden']}: expected a multiple of twice the {shape['heads']} heads")
    return shape


def invent(args):
    """With a cluster that serves the target, or the one at --url."""
    import contextlib
    import signal

    from evaluation import server
    from pair_training import inventing, say
    if os.path.exists(args.out):
        say(f"{args.out}: is there already")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the cluster ends too
    args.tp, args.draft, args.draft_flag = 1, None, []
    with contextlib.ExitStack() as stack:
        started = server.Server(args.url, args.timeout, os.environ.get("COPPICE_API_KEY")) if args.url else None
        inventor = inventing.Inventor(started, args, say)
        if not started:
            arguments = argparse.Namespace(**dict(vars(args), target=pathlib.Path(args.target)))
            inventor.server = server.Server(stack.enter_context(server.started(arguments, drafts=False)), args.timeout)
        try:
            inventor.run()
        except server.ServerError as error:
            print(f"train_pair: {error}", file=sys.stderr)
            sys.exit(1)


def run(args):
    if args.command == "tokenizer":
        train_tokenizer(args, args.out)
        return
    if args.command == "cut":
        from pair_training import cutting
        cutting.cut(args)
        return
    if args.command == "grow":
        from pair_training import growing
        growing.grow(args)
        return
    if args.command == "invent":
        invent(args)
        return
    if args.command == "mean":
        from pair_training import averaging
        averaging.mean(args)
        return
    from pair_training import comparing, training
    try:
        if args.command == "compare":
            comparing.compare(args)
        elif args.command == "model":
            training.train(args, args.tokenizer, args.out, shape_of(args, TARGET), args.minutes)
        elif args.command == "distill":
            training.train(args, tokenizer.file_in(args.target), args.out, shape_of(args, DRAFT), args.minutes, args.target)
        else:
            target, draft = (os.path.join(args.out, f"{args.name}-{role}") for role in ("target", "draft"))
            tokenizer_file = train_tokenizer(args, target)
            training.train(args, tokenizer_file, target, TARGET, args.target_minutes)
            training.train(args, tokenizer_file, draft, DRAFT, args.draft_minutes, target)
    except training.TrainingError as fault:
        raise ArgumentFault(fault) from fault


# ---- arguments

def pattern(text):
    try:
        return re.compile(text) and text
    except re.error as error:
        raise argparse.ArgumentTypeError(f"is no regular expression: {error}") from error


def add_save_dtype(parser):
    parser.add_argument("--save-dtype", choices=["bf16", "f32", "int8"], default="bf16",
                        help="of the folders; int8: matrices with a scale for each row, which only Coppice reads (%(default)s)")


def add_training_options(parser):
    count, number = positive(int), positive(float)
    parser.add_argument("--context", type=count, default=256, help="most tokens of a row (%(default)s)")
    parser.add_argument("--batch-tokens", type=count, default=2048, help="of a process in a step, with padding (%(default)s)")
    parser.add_argument("--pack-tokens", type=count, default=192, help="of rows that share a first line (%(default)s)")
    parser.add_argument("--optimizer", choices=["muon", "adamw"], default="muon",
                        help="muon: Muon for the matrices of the layers, AdamW for the rest (%(default)s)")
    parser.add_argument("--lr", type=number, default=4e-3, help="(%(default)s)")
    parser.add_argument("--frozen", type=int, default=0, metavar="N", help="the embedding and the first N layers stay as they are (0: train all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=count, default=1, help="that train together (%(default)s)")
    parser.add_argument("--threads", type=count, default=1, help="of each process (%(default)s)")
    parser.add_argument("--device", default="cpu", help="of PyTorch (%(default)s)")
    add_dtype(parser)
    add_save_dtype(parser)
    parser.add_argument("--overlap-weight", type=float, default=1.0,
                        help="distillation: of 1 - overlap in the loss, beside the KL divergence (%(default)s)")
    parser.add_argument("--label-weight", type=float, default=0.0,
                        help="distillation: of the text of the rows in the loss, beside what the target says (%(default)s)")
    parser.add_argument("--held-out", metavar="FILE", help="rows to measure the exact match on")
    parser.add_argument("--held-out-rows", type=count, default=300, help="how many of them (%(default)s)")
    parser.add_argument("--checkpoint-minutes", type=number, default=5, help="(%(default)s)")
    parser.add_argument("--progress", type=number, default=30, help="seconds from line to line (%(default)s)")


def add_inventing_options(parser):
    count, number = positive(int), positive(float)
    parser.add_argument("--rows", type=count, default=50_000, help="how many (%(default)s)")
    parser.add_argument("--each", type=count, default=4, help="answers to one first line (%(default)s)")
    parser.add_argument("--temperature", type=number, default=1.0, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vary", action="store_true", help="change the lists of the first lines: see train_pair.py --help")
    parser.add_argument("--parallel", type=count, default=32, help="requests at a time (%(default)s)")
    add_cluster_options(parser)
    parser.add_argument("--progress", type=number, default=30, help="seconds from line to line (%(default)s)")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    tokenizer_of, cut, grow, invent_rows, mean, model, distill, pair, comparison = (commands.add_parser(name) for name in (
        "tokenizer", "cut", "grow", "invent", "mean", "model", "distill", "pair", "compare"))
    for command in (tokenizer_of, cut, invent_rows, model, distill, pair, comparison):
        command.add_argument("--data", required=True, metavar="FILE")
        command.add_argument("--copy-case", type=pattern, metavar="PATTERN", help="see train_pair.py --help")
    for command in (tokenizer_of, cut, grow, mean, model, distill, pair):
        command.add_argument("--out", required=True, metavar="DIR")
    mean.add_argument("trained", nargs="+", metavar="TRAINED", help="model folders of one shape; one that is named twice counts twice")
    invent_rows.add_argument("--out", required=True, metavar="FILE")
    add_inventing_options(invent_rows)
    add_save_dtype(mean)
    for command in (tokenizer_of, cut, pair):
        command.add_argument("--vocab", type=positive(int), default=4096)
    cut.add_argument("--source", required=True, metavar="DIR", help="the folder of a model with tokenizer.json")
    cut.add_argument("--distilled", metavar="DIR", help="layers of it as distill_draft.py has trained them")
    cut.add_argument("--layers", type=numbers, help="which layers, such as 0,1,28,29 (all)")
    cut.add_argument("--context", type=positive(int), default=256, help="most tokens of a row (%(default)s)")
    grow.add_argument("--start", required=True, metavar="DIR")
    grow.add_argument("--after", required=True, type=numbers, help="a new layer after each of these, such as 1,2")
    grow.add_argument("--seed", type=int, default=0)
    for command, shape in ((model, TARGET), (distill, DRAFT)):
        for name, default in shape.items():
            command.add_argument("--" + name, type=positive(int), help=f"({default})")
        command.add_argument("--minutes", type=positive(float), default=60, help="(%(default)s)")
    model.add_argument("--tokenizer", required=True, metavar="FILE")
    pair.add_argument("--name", default="wikisql")
    pair.add_argument("--target-minutes", type=positive(float), default=120)
    pair.add_argument("--draft-minutes", type=positive(float), default=30)
    for command in (model, distill, pair):
        add_training_options(command)
    for command in (model, distill):
        command.add_argument("--vary", action="store_true", help="train on rows that differ: see train_pair.py --help")
    distill.add_argument("--variations", type=positive(int), default=1, metavar="N",
                         help="with --vary: epochs of rows that the target is asked about (%(default)s)")
    pair.set_defaults(vary=False)
    for command in (model, distill):
        command.add_argument("--start", metavar="DIR", help="start from this model and its shape, not from random weights")
    pair.set_defaults(start=None)
    for command in (distill, invent_rows, comparison):
        command.add_argument("--target", required=True, metavar="DIR")
    comparison.add_argument("--draft", required=True, metavar="DIR")
    comparison.add_argument("--examples", type=positive(int), default=400, help="rows, evenly spread (%(default)s)")
    comparison.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if "dtype" in args and "device" in args:
        args.dtype = dtype_of(args.dtype, args.device)
    return args


def modules_of(args):
    """The Python modules that a command needs."""
    if args.command == "tokenizer":
        return ["sentencepiece"]
    if args.command == "cut":
        return ["tokenizers", "numpy"]
    if args.command == "invent":
        return []
    if args.command == "mean":
        folder = args.trained[0]
    else:
        folder = args.start if args.command == "grow" else getattr(args, "target", None)
    try:
        path = getattr(args, "tokenizer", None) or (tokenizer.file_in(folder) if folder else "tokenizer.model")
    except data.DataError:
        path = "tokenizer.model"  # the command says that there is none
    return tokenizer.modules_for(path) + ["numpy", "torch"]


def main():
    args = parse_arguments()
    modules = modules_of(args)
    try:
        if "data" in args and (args.command != "compare" or missing_modules(modules)):
            data.read_rows(args.data, args.copy_case)  # the fault of a file is told before that of a machine
        if getattr(args, "vary", False) and not args.copy_case:
            raise ArgumentFault("--vary: needs --copy-case, the pattern of values")
        if getattr(args, "variations", 1) > 1 and not args.vary:
            raise ArgumentFault("--variations: needs --vary")
        need_modules(modules)
        run(args)
    except (data.DataError, ArgumentFault, OSError) as fault:
        print(f"train_pair: {fault}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
