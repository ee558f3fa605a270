"""Asks a served target for conversations: it writes the question of a user, then its answer at temperature 1. With each id of the
answer the server says which ids are the most likely there, so that the target computes nothing twice."""
import concurrent.futures
import hashlib
import itertools
import json
import threading
import time

import numpy

from draft_distillation import openings, pieces
from draft_distillation.llama import config_of
from draft_distillation.pieces import HELD_OUT, KEPT, PAD, PER_PIECE, DataError

NAME = "token_id:"  # before an id in the log-probabilities
MEANS = 1_000_003  # seeds of a conversation with one --seed and those of the next
SEEDS = 4          # of a conversation
AROUND = 128       # tokens, more than those of a chat template and the first words of a question


def ends_of(config):
    ends = config.get("eos_token_id")
    return set(ends if isinstance(ends, list) else [ends]) - {None}


def digest(texts):
    """Tells other prompts or texts apart; None without any."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16] if texts else None


def around_a_message(server):
    """(ids before a user's message, ids from its end to the beginning of the answer), as the chat template of the server has them."""
    first, second = (server.fetch("/tokenize", {"messages": [{"role": "user", "content": text}]})["tokens"] for text in ("A", "B"))
    same = [a == b for a, b in zip(first, second)]
    before = same.index(False)
    after = same[::-1].index(False)
    return first[:before], first[len(first) - after:]


def place_of(number, count):
    """Which of `count` prompts or texts a conversation has. They come in turn, and in the same places of each cycle of HELD_OUT, so one
    that is held out is never trained on; with less than HELD_OUT there are none to spare."""
    if count < HELD_OUT:
        return number % count
    cycle = -(-count // HELD_OUT) * HELD_OUT
    at = number % cycle
    return at if at < count else at - count + 1


def check_lengths(server, model, texts, name, args):
    """That all of them, with what is around them and the answer, fit in the context of the target."""
    room = model["max_model_len"] - args.answer_tokens - args.question_tokens - AROUND
    for place, text in enumerate(texts, 1):
        if len(text.encode()) <= room:
            continue
        count = len(server.fetch("/tokenize", {"prompt": text})["tokens"])
        if count > room:
            raise DataError(f"--{name}: number {place} has {count} tokens; {model['id']} has room for {room} beside the answer")


class Sampler:
    """Of conversations with numbers; the same number is the same conversation."""

    def __init__(self, server, ends, prompts, texts, args):
        self.server, self.ends, self.prompts, self.texts, self.args = server, ends, prompts, texts, args
        model = server.fetch("/v1/models")["data"][0]
        self.chat = model["capabilities"]["chat"]
        if not self.chat and not prompts:
            raise DataError("the target has no chat template, so it cannot invent questions: give --prompts")
        check_lengths(server, model, prompts, "prompts", args)
        check_lengths(server, model, texts, "texts", args)
        self.before, self.after = (None, None) if prompts else around_a_message(server)

    def ask(self, **body):
        answer = self.server.fetch("/v1/completions", {"return_token_ids": True, "skip_special_tokens": False, "speculative": False,
                                                         "timeout": self.args.timeout, **body})
        return answer["choices"][0]

    def question(self, number):
        """The ids of the prompt."""
        if self.prompts:
            text = self.prompts[place_of(number, len(self.prompts))]
            body = {"messages": [{"role": "user", "content": text}]} if self.chat else {"prompt": text}
            return self.server.fetch("/tokenize", body)["tokens"]
        opening = openings.of(self.args.seed, number, about_texts=bool(self.texts))
        seed = self.args.seed * MEANS + SEEDS * number
        text = ""
        if self.texts:
            text = self.texts[place_of(number, len(self.texts))]
        elif opening.has_text:
            text = self.answer(self.goes_on(self.before, 2, seed), self.args.question_temperature, seed + 1)
        message = self.message(opening.filled(text.strip()))
        return (self.goes_on(message, 1, seed + 3) if opening.goes_on else message) + self.after

    def message(self, text):
        """The ids of a user's message that is not at its end."""
        if not text:
            return self.before
        ids = self.server.fetch("/tokenize", {"messages": [{"role": "user", "content": text}]})["tokens"]
        return ids[:len(ids) - len(self.after)]

    def goes_on(self, message, least, seed):
        """The target writes the rest of the message."""
        asked = self.ask(prompt=message, max_tokens=self.args.question_tokens, min_tokens=least,
                         temperature=self.args.question_temperature, seed=seed)["token_ids"]
        return message + [token for token in asked if token not in self.ends]

    def answer(self, message, temperature, seed):
        return self.ask(prompt=message + self.after, max_tokens=self.args.answer_tokens, temperature=temperature, seed=seed,
                        skip_special_tokens=True)["text"]

    def conversation(self, number):
        prompt = self.question(number)
        answer = self.ask(prompt=prompt, max_tokens=self.args.answer_tokens, temperature=1, logprobs=KEPT, return_tokens_as_token_ids=True,
                          seed=self.args.seed * MEANS + SEEDS * number + 2)
        ids, said = answer["token_ids"], answer["logprobs"]
        if len(said["tokens"]) != len(ids) or not ids:
            raise DataError(f"the server lists {len(said['tokens'])} log-probabilities for {len(ids)} ids")
        top, top_p = numpy.full((len(ids), KEPT), PAD, numpy.uint32), numpy.zeros((len(ids), KEPT), numpy.float32)
        for row, listed in enumerate(said["top_logprobs"]):
            most = sorted(listed.items(), key=lambda item: -item[1])[:KEPT]
            for place, (name, log_p) in enumerate(most):
                top[row, place], top_p[row, place] = int(name.removeprefix(NAME)), numpy.exp(log_p)
        return {"ids": numpy.array(prompt + ids), "asked": len(prompt), "top": top, "top_p": top_p,
                "own_p": numpy.exp(numpy.array(said["token_logprobs"], numpy.float32))}


class Progress:
    """Every few seconds a line, from any thread."""

    def __init__(self, args, say, done):
        self.args, self.say, self.done, self.new = args, say, done, 0
        self.lock, self.began = threading.Lock(), time.monotonic()
        self.shown = self.began

    def add(self, tokens):
        with self.lock:
            self.new += tokens
            now = time.monotonic()
            if now - self.shown < self.args.progress:
                return
            self.shown = now
            rate = self.new / (now - self.began)
            left = max(0, self.args.tokens - self.done - self.new) / rate
            self.say(f"{self.done + self.new} of {self.args.tokens} answered tokens, {rate:.0f} a second, {left / 60:.1f} minutes left")


def answered(folder, number):
    return sum(len(conversation["own_p"]) for conversation in pieces.read(folder, number))


def sample(server, target, prompts, texts, args, say):
    """Writes pieces to args.out until there are args.tokens answered tokens, or args.minutes are over. Those that are there stay."""
    config = config_of(target)
    pieces.open_folder(args.out, {
        "model": server.fetch("/v1/models")["data"][0]["id"], "vocab": config["vocab_size"], "seed": args.seed,
        "question_temperature": args.question_temperature, "question_tokens": args.question_tokens,
        "answer_tokens": args.answer_tokens, "prompts": digest(prompts), "texts": digest(texts)})
    there = pieces.numbers(args.out)
    done = sum(answered(args.out, number) for number in there)
    if there:
        say(f"{args.out}: {done} answered tokens are there already")
    if done >= args.tokens:
        return
    sampler = Sampler(server, ends_of(config), prompts, texts, args)
    progress, until = Progress(args, say, done), time.monotonic() + 60 * args.minutes
    left = (number for number in itertools.count() if number not in set(there))
    todo, begun, running = [], {}, {}  # conversations of the last piece, finished ones of each piece, those that are asked
    pool = concurrent.futures.ThreadPoolExecutor(args.parallel)
    try:
        while True:
            while len(running) < args.parallel:
                if not todo:
                    if done >= args.tokens or time.monotonic() >= until:
                        break  # pieces that were begun are finished
                    first = next(left) * PER_PIECE
                    todo = list(range(first, first + PER_PIECE))
                number = todo.pop(0)
                running[pool.submit(sampler.conversation, number)] = number
            if not running:
                break
            for future in concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED).done:
                number, conversation = running.pop(future), future.result()
                done += len(conversation["own_p"])
                progress.add(len(conversation["own_p"]))
                piece = begun.setdefault(number // PER_PIECE, {})
                piece[number] = conversation
                if len(piece) == PER_PIECE:
                    del begun[number // PER_PIECE]
                    pieces.write(args.out, number // PER_PIECE, [piece[key] for key in sorted(piece)])
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # what is still asked ends with the cluster
    say(f"{args.out}: {done} answered tokens in {len(pieces.numbers(args.out))} pieces")
