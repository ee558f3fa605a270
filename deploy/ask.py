#!/usr/bin/env python3
"""Sends the questions of a JSON lines file to a Coppice cluster in two ways, with one beam and with four, each with drafts and
without. Prints the answers, then a table of the times. With --tour, sends the first four questions once for each verification
method that the server lists, and prints one line per method. Uses only the Python standard library.

A line of the file: {"prompt": ..., "title": ..., "body": {further fields of POST /v1/completions}}. Only the prompt must be there.
A time is that of the whole HTTP request, the median of --repeats requests. Requests with and without drafts take turns. All are
sent twice before, uncounted: that fills the prefix cache, and the server learns what its passes cost and how good drafts are.
Exit status 1 if a request fails, if the hypotheses with and without drafts differ, or if no draft was used; 2 if an argument or the
file cannot be used.
"""
import argparse
import http.client
import json
import statistics
import sys
import time

import api_connection

# What the table compares. The server chooses whether and how to draft ("auto").
WAYS = {
    "one beam, greedy": {"decoding": "multinomial", "temperature": 0, "n": 1},
    "four beams, sampled": {"decoding": "beam_sampling", "beam_width": 4, "n": 4, "seed": 7},
}
WARM_UPS = 2
TOUR_SHAPE = {"draft_width": 8, "draft_depth": 4}


class Client:
    """One connection to the coordinator, which stays open as in most clients."""

    def __init__(self, server):
        self.server = server
        self.connection = server.connect(timeout_s=120)

    def fetch(self, path, body=None):
        """Returns the JSON of a GET, or of a POST if there is a `body`. Exits with the server's message on an error status."""
        data = None if body is None else json.dumps(body).encode()
        try:
            self.connection.request("GET" if body is None else "POST", path, data, self.server.headers)
            response = self.connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            sys.exit(f"ask: {self.server.url} does not answer: {error!r}")
        if response.status != 200:
            sys.exit(f"ask: {response.status} {text.strip()}")
        return json.loads(text)

    def complete(self, body):
        """POST /v1/completions -> (answer, wall seconds)."""
        start = time.monotonic()
        return self.fetch("/v1/completions", body), time.monotonic() - start


def hypotheses(answer):
    """What must be the same with and without drafts: token ids, text, scores and finish reasons, in order."""
    return [(c.get("token_ids"), c["text"], c.get("score"), c.get("joint_logprob"), c["finish_reason"])
            for c in answer["choices"]]


class Asked:
    """What one question gave in one way: the answer, times with and without drafts, and the counts of the requests with."""

    def __init__(self, client, question, way):
        body = dict(question.get("body", {}), **WAYS[way], prompt=question["prompt"], return_token_ids=True)
        self.client = client
        self.bodies = {True: dict(body, speculative="auto"), False: dict(body, speculative=False)}
        self.seconds = {True: [], False: []}
        self.layers = self.passes = self.plain = self.drafted_nodes = 0
        self.same = True
        self.answer = None

    def ask(self, counted):
        first = len(self.seconds[True]) % 2 == 0  # who comes first changes
        answers = {}
        for drafts in (first, not first):
            answers[drafts], seconds = self.client.complete(self.bodies[drafts])
            if counted:
                self.seconds[drafts].append(seconds)
        self.same = self.same and hypotheses(answers[True]) == hypotheses(answers[False])
        self.answer = answers[True]
        spec = self.answer["usage"]["speculation"]
        self.drafted_nodes += spec["drafted_nodes"]
        if counted:
            self.layers += spec["layers"]
            self.passes += spec["target_passes"]
            self.plain += spec["plain_rounds"]

    def middle(self, drafts):
        return statistics.median(self.seconds[drafts])

    def tokens(self):
        return len(self.answer["choices"][0]["token_ids"])


def show_answers(number, question, asked):
    """The prompt, and the distinct hypotheses of each way."""
    print(f"\n[{number}] {question.get('title', '')}".rstrip())
    for line in question["prompt"].splitlines():
        print(f"    | {line}")
    for way, result in asked.items():
        print(f"  {way}:")
        texts = [choice["text"].strip() for choice in result.answer["choices"]]
        for i, choice in enumerate(result.answer["choices"]):
            if texts[i] in texts[:i]:
                continue
            score = choice.get("score")
            print(f"    {format(score, '8.4f') + '  ' if score else ''}{texts[i]}")
        if not result.same:
            print("    DIFFERENT hypotheses with and without drafts")


def table_line(head, without, with_drafts, layers, passes, tokens=""):
    per_pass = format(layers / passes, ".2f") if passes else "-"
    ratio = without / with_drafts
    return f"  {head:<24}{tokens:>8}{without * 1000:>13.1f}{with_drafts * 1000:>13.1f}{ratio:>9.2f}{per_pass:>14}"


def show_table(way, results):
    """Times of one way for every question, their sum, and what it means. Returns the ratio of the sums."""
    print(f"\n{way + ':':<26}{'tokens':>8}{'without, ms':>13}{'drafts, ms':>13}{'ratio':>9}{'efficiency':>14}")
    for i, result in enumerate(results):
        print(table_line(f"question {i + 1}", result.middle(False), result.middle(True), result.layers, result.passes,
                         result.tokens()))
    without, with_drafts = (sum(result.middle(drafts) for result in results) for drafts in (False, True))
    layers, passes = sum(r.layers for r in results), sum(r.passes for r in results)
    print(table_line("all", without, with_drafts, layers, passes, sum(r.tokens() for r in results)))
    return without / with_drafts


def conclude(way, ratio, results):
    """What the table of one way says, in a sentence."""
    faster = sum(r.middle(True) < r.middle(False) for r in results)
    passes = sum(r.passes for r in results)
    share = 1 - sum(r.plain for r in results) / max(passes, 1)
    drafted = f"the server drafted for {100 * share:.0f} % of the passes"
    if share < 0.2:
        return f"{way}: drafts do not pay here; {drafted}, to see whether they do."
    if ratio >= 1:
        return f"{way}: {ratio:.2f} times as fast with drafts, {faster} of {len(results)} questions faster; {drafted}."
    return f"{way}: drafts LOSE here, {1 / ratio:.2f} times as slow, {faster} of {len(results)} questions faster; {drafted}."


def compare(client, questions, repeats):
    """Asks all questions in all ways and prints answers and tables. Exits with a message if something is wrong."""
    asked = [{way: Asked(client, question, way) for way in WAYS} for question in questions]
    for counted in [False] * WARM_UPS + [True] * repeats:
        for of_question in asked:
            for result in of_question.values():
                result.ask(counted)
    for i, question in enumerate(questions):
        show_answers(i + 1, question, asked[i])
    ratios = {way: show_table(way, [of_question[way] for of_question in asked]) for way in WAYS}
    print(f"\nTimes are medians of {repeats} requests, after {WARM_UPS} that do not count. A pass of the target without drafts decides one layer.")
    for way, ratio in ratios.items():
        print(conclude(way, ratio, [of_question[way] for of_question in asked]))
    sys.stdout.flush()
    everything = [result for of_question in asked for result in of_question.values()]
    if not all(result.same for result in everything):
        sys.exit("ask: hypotheses differ with and without drafts")
    if not any(result.drafted_nodes for result in everything):
        sys.exit("ask: no draft reached any request; is the draft node running?")


def by_method(question, method, decoding):
    """The request body for this question with one method and one of its decodings, as /v1/models lists them."""
    body = dict(question.get("body", {}), prompt=question["prompt"], decoding=decoding)
    if decoding == "multinomial":
        body["n"] = 1
        if method["greedy_only"]:
            body["temperature"] = 0
    else:
        body.update(beam_width=4, n=4, seed=7)
    shape = dict(TOUR_SHAPE)
    if method["draft_form"] == "none":
        shape = {}
    elif method["draft_form"] == "path":
        shape["draft_width"] = 1
    elif method["most_children"]:
        shape["draft_width"] = min(shape["draft_width"], method["most_children"])
    body["speculative"] = dict(shape, method=method["name"], **({} if method["lossless"] else {"allow_lossy": True}))
    return body

def tour(client, questions):
    """Asks the questions with every method and decoding. Prints one line of totals for each method and decoding."""
    print(f"{'method':<25}{'decoding':<34}{'distribution':<14}{'block efficiency':>17}{'drafted':>9}{'accepted':>9}{'ms each':>9}  first answer")
    for method in client.fetch("/v1/models")["data"][0]["capabilities"]["methods"]:
        for decoding in method["decodings"]:
            answers = [client.complete(by_method(question, method, decoding)) for question in questions]
            spec = [answer["usage"]["speculation"] for answer, _ in answers]
            if any(s["method"] != method["name"] for s in spec):
                sys.exit(f"ask: {method['name']} was asked for, {spec[0]['method']} answered")
            sums = {key: sum(s[key] for s in spec) for key in ("layers", "target_passes", "drafted_nodes", "accepted_nodes")}
            if method["draft_form"] != "none" and not sums["drafted_nodes"]:
                sys.exit(f"ask: no draft reached {method['name']}; is the draft node running?")
            print(f"{method['name']:<25}{decoding:<34}{'kept' if method['lossless'] else 'lossy':<14}"
                  f"{sums['layers'] / max(sums['target_passes'], 1):>17.2f}{sums['drafted_nodes']:>9}{sums['accepted_nodes']:>9}"
                  f"{1000 * sum(seconds for _, seconds in answers) / len(answers):>9.1f}"
                  f"  {answers[0][0]['choices'][0]['text'].strip()}", flush=True)


def expected(question):
    """What a line of the file should have and lacks, or None."""
    if not isinstance(question.get("prompt"), str):
        return 'an object with "prompt", a text'
    if not isinstance(question.get("body", {}), dict):
        return 'an object as "body"'
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    api_connection.add_options(parser)
    parser.add_argument("--repeats", type=int, default=5, help="counted requests of each kind for each question; default: 5")
    parser.add_argument("--tour", action="store_true", help="ask four questions with every method that the server lists")
    parser.add_argument("file")
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {args.repeats}")
    client = Client(api_connection.Server(args))
    questions = api_connection.read_questions(args.file, expected)
    if args.tour:
        tour(client, questions[:4])
    else:
        compare(client, questions, args.repeats)


if __name__ == "__main__":
    try:
        main()
    except api_connection.Fault as fault:
        print(f"ask: {fault}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
