"""More rows of a task, which a served target writes: it goes on from the first line of a row to the end of a completion. What it was
trained on has few rows of each kind; a model that learns from it wants many."""
import concurrent.futures
import hashlib
import itertools
import json
import os
import random
import re
import time

from tool_arguments import DataError

from pair_training import data, variation

OF = "of"  # key of the first line of FILE.partial, which says how that was begun
HOPELESS = 64  # requests without a row, after which it is given up
MEANS = 1_000_003  # seeds of a request with one --seed and those of the next


def ends_of_prompts(rows, path):
    """What the second line of all prompts begins with, such as "question:", and what all end with, such as a line feed and "sql:",
    where a text is cut into prompt and completion. Words that rows share by chance are no part of them."""
    prompts = [prompt for prompt, _ in rows]
    begin = os.path.commonprefix([prompt.partition("\n")[2] for prompt in prompts])
    end = os.path.commonprefix([prompt[::-1] for prompt in prompts])[::-1]
    end = end[max(0, end.rfind("\n")):]
    if not end.strip():
        raise DataError(f"{path}: its prompts have no end in common, so nobody can say where a completion begins")
    return re.sub(r"\w+$", "", begin).rstrip(), end


def beginnings(rows, begin, args):
    """Without end: the first line of a row, its list changed if args.vary, and the beginning of the second. The same for the same
    args.seed."""
    for epoch in itertools.count(args.seed):
        varied = variation.Variation(rows, args.copy_case).epoch(epoch) if args.vary else rows
        heads = [head + feed + begin for head, feed, rest in (prompt.partition("\n") for prompt, _ in varied) if rest]
        if not heads:
            raise DataError(f"{args.data}: its prompts have one line, so there is none to go on from")
        random.Random(epoch).shuffle(heads)
        yield from heads


def row_of(head, choice, end):
    """The row that a choice of the server is, or None if it is none: not finished, or without a prompt's end or a completion."""
    text, cut, completion = choice["text"].partition(end)
    if choice["finish_reason"] != "stop" or not cut or not text.strip() or not completion.strip():
        return None
    return {"prompt": head + text + cut, "completion": completion}


class Inventor:
    """Writes args.out, a row on each line; until it has args.rows it is called FILE.partial, and the same command goes on with it."""

    def __init__(self, server, args, say):
        self.server, self.args, self.say = server, args, say
        rows = data.read_rows(args.data)
        begin, self.end = ends_of_prompts(rows, args.data)
        self.heads = beginnings(rows, begin, args)
        self.known = {prompt for prompt, _ in rows}
        self.partial = args.out + ".partial"
        how = [os.path.abspath(args.target), args.data, args.seed, args.vary, args.copy_case, args.each, args.temperature]
        self.of = hashlib.sha256(json.dumps(how).encode()).hexdigest()
        self.asked, self.written, self.refused = 0, 0, 0

    def go_on(self):
        """Takes the rows that are there. Those of the last request go, since they may not be all of it."""
        if not os.path.exists(self.partial):
            self.replace(self.partial, [{OF: self.of}])
            return
        with open(self.partial, encoding="utf8") as file:
            first, *rows = [json.loads(line) for line in file if line.endswith("\n")] or [{}]
        if first.get(OF) != self.of:
            raise DataError(f"{self.partial}: was begun with other options; remove it to start anew")
        self.asked = rows[-1]["request"] if rows else 0
        kept = [row for row in rows if row["request"] < self.asked]
        self.replace(self.partial, [first] + kept)
        self.known.update(row["prompt"] for row in kept)
        self.written = len(kept)
        for _ in range(self.asked):
            next(self.heads)
        self.say(f"{self.args.out}: {self.written} rows are there already")

    @staticmethod
    def replace(path, lines):
        with open(path + ".new", "w", encoding="utf8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        os.replace(path + ".new", path)

    def ask(self, number, head):
        answer = self.server.fetch("/v1/completions", {
            "prompt": head, "n": self.args.each, "temperature": self.args.temperature, "seed": self.args.seed * MEANS + number,
            "speculative": False, "timeout": self.args.timeout})
        return [row for row in (row_of(head, choice, self.end) for choice in answer["choices"]) if row]

    def run(self):
        args, begun = self.args, time.monotonic()
        self.go_on()
        there, shown = self.written, begun
        pool, waiting = concurrent.futures.ThreadPoolExecutor(args.parallel), []
        try:
            with open(self.partial, "a", encoding="utf8") as file:
                while self.written < args.rows:
                    while len(waiting) < 2 * args.parallel:
                        number = self.asked + len(waiting)
                        waiting.append(pool.submit(self.ask, number, next(self.heads)))
                    self.write(waiting.pop(0).result(), file)
                    if self.asked >= HOPELESS and self.written == 0:
                        raise DataError(f"{args.target}: wrote no row in {self.asked} requests; expected texts with {self.end!r} and more, as in {args.data}")
                    if time.monotonic() - shown > args.progress:
                        shown = time.monotonic()
                        rate = max(1, self.written - there) / (shown - begun)
                        self.say(f"{args.out}: {self.written} of {args.rows} rows, {(args.rows - self.written) / rate / 60:.1f} minutes left")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        self.finish()

    def write(self, rows, file):
        """The rows of a request that are new, in the order of requests."""
        number, lines = self.asked, []
        self.asked += 1
        self.refused += self.args.each - len(rows)
        for row in rows:
            if row["prompt"] not in self.known:
                self.known.add(row["prompt"])
                lines.append(json.dumps(dict(row, request=number)) + "\n")
        file.write("".join(lines))
        file.flush()
        self.written += len(lines)

    def finish(self):
        with open(self.partial, encoding="utf8") as file:
            rows = [json.loads(line) for line in file][1:]
        self.replace(self.args.out, [{"prompt": row["prompt"], "completion": row["completion"]} for row in rows])
        os.remove(self.partial)
        self.say(f"{self.args.out}: {len(rows)} rows; {self.refused} other answers were no rows")
