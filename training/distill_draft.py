#!/usr/bin/env python3
"""Makes a draft for a Llama or Qwen3 target of your own, which learns to say what the target says. By --kind of train and teach:

  layers  an independent model: a few of the target's layers between its embedding and the most used rows of its head
  eagle3  an EAGLE-3 head: one layer over hidden states of the target and the embedding of the next token
  dflash  a block drafter, DFlash with DSpark's bias: some layers that say all tokens of a block in one pass over hidden states

  distill_draft.py sample  --target DIR --out TEXT                 asks the target for conversations
  distill_draft.py train   --target DIR --data TEXT --out DRAFT    trains the draft on them; --data may be repeated
  distill_draft.py teach   --target DIR --out DRAFT --device cuda  both at once on a GPU, the target in PyTorch too
  distill_draft.py mean    --target DIR --out DRAFT TRAINED ...    the mean of several trainings
  distill_draft.py measure --data TEXT --draft DRAFT               its overlap with the target on the answers held out; a draft of the
                                                                   kinds eagle3 and dflash needs --target DIR too

sample starts a cluster with the target (--url: asks one that runs). The target writes the question of a user in its own chat template,
from a few first words of many kinds on, then the answer at temperature 1. Kept are the ids and, for each id of an answer, the 20 most
likely ones with their probabilities. Drafts are best at what they were trained on, so add what your users ask (--prompts) and the kind
of documents that they ask about (--texts), each in a folder of its own. A target without a chat template needs --prompts. train learns
from these probabilities (forward KL divergence and overlap). One answer of 20 is held out to measure the overlap, the mean of
sum min(p, q): the share of drafted tokens that the target accepts.

teach needs no server: the target answers in the process that trains, in lessons of new conversations, and says its whole distribution
wherever the draft learns. On a GPU that is much faster; on a CPU sample and train are.

A draft of the kinds eagle3 and dflash takes hidden states of the target, which computes them in the process that trains. It learns
--draft-steps tokens ahead: a head over its own states, as it will be run (training-time test), a block drafter those of its block. Each
further step counts 0.8 times as much. The progress shows the overlap at each of them. Their folders have the layouts of published ones
(SpecForge, z-lab); such a folder is also what --start and mean take, where the kind layers has DRAFT/trained.

sample, train and teach may be ended at any time and go on with the same command; train may run while sample still writes. A draft of
the kind layers is a model folder like any other. DRAFT/trained has only what was trained, which is small; training/draft_folder.py
makes a folder of it again. The mean of a draft and of what train --start made of it is often better than either. A TRAINED that is
named twice counts twice.

sample needs NumPy for Python, and built programs (deploy/build.sh) unless --url is given. The others need PyTorch too: pip install
torch numpy. teach also needs the target's tokenizer.json, and pip install tokenizers jinja2. Exit status: 2 for wrong arguments or
data, 1 if the server fails, 130 after Ctrl-C, 143 after SIGTERM.
"""
import argparse
import contextlib
import json
import os
import pathlib
import signal
import sys
import time

from tool_arguments import ArgumentFault, add_cluster_options, add_dtype, dtype_of, need_modules, numbers, positive


def say(text):
    print(f"distill_draft: {time.strftime('%H:%M:%S')} {text}", flush=True)


def read_texts(path, field):
    """Those of JSON lines {field: ...}."""
    from draft_distillation.pieces import DataError
    texts = []
    try:
        with open(path, encoding="utf8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    text = json.loads(line)[field]
                except (ValueError, KeyError, TypeError) as error:
                    raise DataError(f"{path}:{number}: expected an object with {field}") from error
                if not isinstance(text, str) or not text.strip():
                    raise DataError(f"{path}:{number}: {field}: expected a text")
                texts.append(text)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {getattr(error, 'strerror', None) or 'is not UTF-8'}") from error
    if not texts:
        raise DataError(f"{path}: no {field}s")
    return texts


def run_sample(args):
    from draft_distillation import llama, sampling
    from evaluation import server
    if args.prompts and args.texts:
        raise ArgumentFault("--prompts, --texts: expected one of them; two folders of TEXT can be trained on together")
    prompts = read_texts(args.prompts, "prompt") if args.prompts else []
    texts = read_texts(args.texts, "text") if args.texts else []
    llama.config_of(args.target)
    args.tp = 1
    with contextlib.ExitStack() as stack:
        url = args.url
        if not url:
            say("starting the cluster")
            args.target, args.draft, args.draft_flag = pathlib.Path(args.target), None, []
            url = stack.enter_context(server.started(args, drafts=False))
        sampling.sample(server.Server(url, args.timeout, os.environ.get("COPPICE_API_KEY")), args.target, prompts, texts, args, say)


def prepare_training(args):
    """(config.json of the target, the layers that the draft starts with), or None if there is nothing to do."""
    import torch
    from draft_distillation import kinds, llama
    torch.set_num_threads(args.threads)
    if os.path.exists(os.path.join(args.out, "model.safetensors")) and not os.path.exists(os.path.join(args.out, "checkpoint.pt")):
        say(f"{args.out}: is there already")
        return None
    config = llama.config_of(args.target)
    return config, args.layers or kinds.first_layers(args.kind, config["num_hidden_layers"])


def run_train(args):
    from draft_distillation import training
    if prepared := prepare_training(args):
        config, layers = prepared
        training.Training(args, layers, config, say).run()


def run_teach(args):
    from draft_distillation import teaching
    if prepared := prepare_training(args):
        config, layers = prepared
        files = [{path: read_texts(path, field) for path in paths}
                 for paths, field in ((args.prompts, "prompt"), (args.texts, "text"), (args.only_measured, "prompt"))]
        teaching.Teaching(args, layers, config, *files, say).run()


def run_mean(args):
    from draft_distillation import kinds, pieces
    if os.path.exists(os.path.join(args.out, "model.safetensors")):
        raise pieces.DataError(f"{args.out}: is there already")
    draft = kinds.like(args.trained[0], args.target)
    draft.take_mean(args.trained)
    os.makedirs(args.out, exist_ok=True)
    draft.write(args.out, args.target)
    say(f"{args.out}: the mean of {len(args.trained)} drafts")


def run_measure(args):
    import torch
    from draft_distillation import kinds, pieces, rows, training
    torch.set_num_threads(args.threads)
    draft, states = kinds.read_draft(args.draft, args.target, args)
    figures = []
    for folder in args.data:
        conversations = rows.Conversations([folder], args.context)
        held_out = conversations.held_out[folder]
        measured = held_out + conversations.training if args.all else held_out[:args.held_out]
        if not measured:
            raise pieces.DataError(f"{folder}: no conversations are held out, or --context {args.context} is too short for them")
        figures.append(training.measure(draft, measured, args, states))
        print(f"{folder}: {figures[-1].tokens} tokens of {len(measured)} answers: {figures[-1]}", flush=True)
    if len(figures) > 1:
        total = sum(figures[1:], figures[0])
        print(f"all {total.tokens} tokens: {total}")


# ---- arguments

def add_conversation_options(parser):
    count, number = positive(int), positive(float)
    parser.add_argument("--question-temperature", type=number, default=0.7, help="of its own questions (%(default)s)")
    parser.add_argument("--question-tokens", type=count, default=80, help="most tokens of its own questions (%(default)s)")
    parser.add_argument("--answer-tokens", type=count, default=160, help="most tokens of an answer (%(default)s)")


def add_sample_options(parser):
    count, number = positive(int), positive(float)
    parser.add_argument("--out", required=True, metavar="TEXT", help="the folder of the conversations")
    parser.add_argument("--tokens", type=count, default=2_000_000, help="of answers, in all (%(default)s)")
    parser.add_argument("--minutes", type=number, default=1e6, help="end earlier, after this time")
    parser.add_argument("--prompts", metavar="FILE", help='JSON lines {"prompt": ...}: these questions instead of its own')
    parser.add_argument("--texts", metavar="FILE",
                        help='JSON lines {"text": ...}: it summarises them, and asks and answers questions about them')
    add_conversation_options(parser)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parallel", type=count, default=128, help="requests at a time (%(default)s)")
    add_cluster_options(parser)


def add_teach_options(parser):
    count, number = positive(int), positive(float)
    for name, field, what in (("prompts", "prompt", "questions that it answers beside its own"),
                              ("texts", "text", "it summarises them, and asks and answers questions about them"),
                              ("only-measured", "prompt", "questions on which the overlap is measured and nothing is trained")):
        parser.add_argument(f"--{name}", action="append", default=[], metavar="FILE", help=f'JSON lines {{"{field}": ...}}: {what}; may be repeated')
    parser.add_argument("--no-own", action="store_true", help="it invents no questions: --prompts and --texts alone")
    add_conversation_options(parser)
    parser.add_argument("--parallel", type=count, default=2048, help="conversations of a lesson, of each kind: its own, each FILE (%(default)s)")
    parser.add_argument("--epochs", type=count, default=2, help="of a lesson (%(default)s)")
    parser.add_argument("--cache-gib", type=number, help="memory of keys and values (a quarter of what is free on a GPU, 1 on a CPU)")


def add_training_options(parser):
    count, number = positive(int), positive(float)
    parser.add_argument("--out", required=True, metavar="DRAFT", help="the model folder that is written")
    parser.add_argument("--kind", choices=["layers", "eagle3", "dflash"], default="layers",
                        help="layers: an independent model, some layers of the target; eagle3: a head over its hidden states; dflash: a block "
                             "drafter over them (%(default)s)")
    parser.add_argument("--layers", type=numbers, metavar="N,N",
                        help="layers of the target that the draft starts with (the first two and the last two; eagle3: the last)")
    parser.add_argument("--state-layers", type=numbers, metavar="N,N,N",
                        help="layers of the target, from 0, whose outputs the draft takes (of n, eagle3: 1, n/2 - 1 and n - 4; dflash: five from 1 to n - 3)")
    parser.add_argument("--draft-steps", type=count, default=4, help="tokens ahead that a head or a block drafter learns (%(default)s)")
    parser.add_argument("--markov-rank", type=int, default=256, help="rank of a block drafter's bias by the token before; 0: none (%(default)s)")
    parser.add_argument("--blocks", type=count, default=512, help="blocks of a step from which a block drafter learns (%(default)s)")
    parser.add_argument("--head-ids", type=count,
                        help="ids that the draft can say, the most frequent of TEXT; a level of a draft reads the head (8192, or those of --start; "
                             "dflash: all)")
    parser.add_argument("--start", metavar="TRAINED", help="go on from this draft, with as many --layers: a folder DRAFT/trained; eagle3 and dflash: DRAFT, or a published one")
    parser.add_argument("--minutes", type=number, default=60, help="(%(default)s)")
    parser.add_argument("--steps", type=count, help="end after so many instead; the same command then gives the same draft on the same machine")
    parser.add_argument("--optimizer", choices=["muon", "adamw"], default="muon",
                        help="muon: Muon for the matrices, AdamW for the rest (%(default)s)")
    parser.add_argument("--lr", type=number, default=5e-3, help="(%(default)s); AdamW wants about 1e-3")
    parser.add_argument("--fall", type=number, default=0.4, help="the last share of the time, in which the learning rate falls (%(default)s)")
    parser.add_argument("--overlap-weight", type=float, default=1.0, help="of 1 - overlap in the loss, beside the KL divergence (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint-minutes", type=number, default=5, help="(%(default)s)")


def add_data_option(parser):
    parser.add_argument("--data", required=True, action="append", type=os.path.normpath, metavar="TEXT", help="a folder that sample has written; may be repeated")


def add_common_options(parser):
    count = positive(int)
    parser.add_argument("--context", type=count, default=512, help="most tokens of a conversation; the rest is cut off, and without an answer it is left out (%(default)s)")
    parser.add_argument("--batch-tokens", type=count, default=4096, help="of a step, with padding (%(default)s)")
    parser.add_argument("--held-out", type=count, default=200, help="answers of each TEXT, or each kind, that are measured (%(default)s)")
    parser.add_argument("--threads", type=count, default=2, help="(%(default)s)")
    parser.add_argument("--device", default="cpu", help="of PyTorch (%(default)s)")
    add_dtype(parser)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    sample, train, teach, mean, measure = (commands.add_parser(name) for name in ("sample", "train", "teach", "mean", "measure"))
    for command in (sample, train, teach, mean):
        command.add_argument("--target", required=True, metavar="DIR", help="the model folder of the target")
    for command in (sample, train, teach):
        command.add_argument("--progress", type=positive(float), default=30, help="seconds from line to line (%(default)s)")
    add_sample_options(sample)
    add_teach_options(teach)
    for command in (train, teach):
        add_training_options(command)
    for command in (train, measure):
        add_data_option(command)
    for command in (train, teach, measure):
        add_common_options(command)
    train.add_argument("--others", type=positive(int), default=4096,
                       help="ids drawn in a step for those that nobody asks for; all are computed if there are fewer (%(default)s)")
    mean.add_argument("trained", nargs="+", metavar="TRAINED", help="folders DRAFT/trained with as many layers; the ids of the head are those of the first")
    mean.add_argument("--out", required=True, metavar="DRAFT")
    measure.add_argument("--draft", required=True, metavar="DRAFT")
    measure.add_argument("--target", metavar="DIR", help="the target of a draft that takes its hidden states")
    measure.add_argument("--draft-steps", type=positive(int), default=4, help="of an EAGLE-3 head (%(default)s)")
    measure.add_argument("--all", action="store_true", help="measure on all of TEXT: text that was sampled only for this")
    args = parser.parse_args()
    if "dtype" in args and "device" in args:
        args.dtype = dtype_of(args.dtype, args.device)
    return args


def main():
    args = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    modules = {"sample": ("numpy",), "teach": ("numpy", "torch", "tokenizers", "jinja2")}.get(args.command, ("numpy", "torch"))
    try:
        need_modules(modules)
        from draft_distillation.pieces import DataError
        from evaluation.server import ServerError
        try:
            {"sample": run_sample, "train": run_train, "teach": run_teach, "mean": run_mean, "measure": run_measure}[args.command](args)
        except ServerError as error:
            print(f"distill_draft: {error}", file=sys.stderr)
            sys.exit(1)
        except DataError as fault:
            raise ArgumentFault(fault) from fault
    except (ArgumentFault, OSError) as fault:
        print(f"distill_draft: {fault}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
