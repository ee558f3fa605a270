#!/usr/bin/env python3
"""Sends the questions of a JSON lines file to a Coppice cluster, each once with drafts and once without. Prints every
hypothesis, its score, and what the drafts saved. With --tour, sends every question once for each verification method
that the server lists, and prints one line per method. Uses only the Python standard library.

A line of the file: {"prompt": ..., "title": ..., "body": {further fields of POST /v1/completions}}.
Exit status 1 if a request fails, if the hypotheses with and without drafts differ, or if no draft was used.
"""
import argparse
import json
import sys
import time
import urllib.error
import urllib.request


def fetch(url, path, body=None):
    """Returns the JSON of a GET, or of a POST if there is a `body`. Exits with the server's message on an error status."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)
    except urllib.error.HTTPError as refused:
        sys.exit(f"ask: {refused.code} {refused.read().decode().strip()}")
    except OSError as error:
        sys.exit(f"ask: {url} does not answer: {error}")


def complete(url, body):
    """POST /v1/completions -> (answer, wall seconds)."""
    start = time.monotonic()
    return fetch(url, "/v1/completions", body), time.monotonic() - start


def hypotheses(answer):
    """What must be the same with and without drafts: token ids, text, scores and finish reasons, in order."""
    return [(c.get("token_ids"), c["text"], c.get("score"), c.get("joint_logprob"), c["finish_reason"])
            for c in answer["choices"]]


def describe(name, answer, seconds):
    spec = answer["usage"]["speculation"]
    per_pass = spec["layers_per_pass"]
    return (f"  {name:<15}{spec['target_passes']:>3} target passes, "
            f"{'-' if per_pass is None else format(per_pass, '.2f')} layers each, {seconds * 1000:7.1f} ms"
            f"  ({spec['method']}, {spec['accepted_nodes']} of {spec['drafted_nodes']} drafted nodes accepted)")


def ask(url, question, number, total):
    """Asks and prints one question. Returns (hypotheses equal?, drafted nodes, layers, target passes); the counts are with drafts."""
    body = dict(question.get("body", {}), prompt=question["prompt"], return_token_ids=True)
    drafted, drafted_s = complete(url, body)
    plain, plain_s = complete(url, dict(body, speculative=False))
    print(f"\n[{number}/{total}] {question['title']}")
    for line in question["prompt"].splitlines():
        print(f"    | {line}")
    for choice in drafted["choices"]:
        score = choice.get("score")
        print(f"  {'' if score is None else format(score, '8.4f')}  {choice['text'].strip()}")
    print(describe("with drafts", drafted, drafted_s))
    print(describe("without drafts", plain, plain_s))
    same = hypotheses(drafted) == hypotheses(plain)
    print("  same hypotheses and scores either way" if same else "  DIFFERENT hypotheses with and without drafts", flush=True)
    spec = drafted["usage"]["speculation"]
    return same, spec["drafted_nodes"], spec["layers"], spec["target_passes"]


def by_method(question, method, decoding):
    """The request body for this question with one method and one of its decodings, as /v1/models lists them."""
    body = dict(question.get("body", {}), prompt=question["prompt"], decoding=decoding)
    if decoding == "multinomial":
        body.pop("beam_width", None)
        body["n"] = 1
        if method["greedy_only"]:
            body["temperature"] = 0
    shape = body.pop("speculative", {})
    if method["draft_form"] == "none":
        shape = {}
    if method["draft_form"] == "path" and "draft_width" in shape:
        shape["draft_width"] = 1
    if method["most_children"] and "draft_width" in shape:
        shape["draft_width"] = min(shape["draft_width"], method["most_children"])
    body["speculative"] = dict(shape, method=method["name"], **({} if method["lossless"] else {"allow_lossy": True}))
    return body


def tour(url, questions):
    """Asks every question with every method and decoding. Prints one line of totals for each method and decoding."""
    print(f"{'method':<25}{'decoding':<34}{'law':<10}{'layers per pass':>15}{'drafted':>9}{'accepted':>9}{'ms each':>9}  first answer")
    for method in fetch(url, "/v1/models")["data"][0]["capabilities"]["methods"]:
        for decoding in method["decodings"]:
            answers = [complete(url, by_method(question, method, decoding)) for question in questions]
            spec = [answer["usage"]["speculation"] for answer, _ in answers]
            if any(s["method"] != method["name"] for s in spec):
                sys.exit(f"ask: {method['name']} was asked for, {spec[0]['method']} answered")
            sums = {key: sum(s[key] for s in spec) for key in ("layers", "target_passes", "drafted_nodes", "accepted_nodes")}
            if method["draft_form"] != "none" and not sums["drafted_nodes"]:
                sys.exit(f"ask: no draft reached {method['name']}; is the draft node running?")
            print(f"{method['name']:<25}{decoding:<34}{'kept' if method['lossless'] else 'lossy':<10}"
                  f"{sums['layers'] / max(sums['target_passes'], 1):>15.2f}{sums['drafted_nodes']:>9}{sums['accepted_nodes']:>9}"
                  f"{1000 * sum(seconds for _, seconds in answers) / len(answers):>9.1f}"
                  f"  {answers[0][0]['choices'][0]['text'].strip()}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--tour", action="store_true", help="ask every question with every method that the server lists")
    parser.add_argument("file")
    args = parser.parse_args()
    with open(args.file, encoding="utf8") as lines:
        questions = [json.loads(line) for line in lines if line.strip()]
    if args.tour:
        tour(args.url, questions)
        return
    results = [ask(args.url, question, i + 1, len(questions)) for i, question in enumerate(questions)]
    layers, passes = sum(r[2] for r in results), sum(r[3] for r in results)
    print(f"\nTotal with drafts: {layers} layers in {passes} target passes ({layers / max(passes, 1):.2f} layers per pass; "
          "without drafts it is 1).\nA pass of this small target takes about a millisecond. With a large target, the passes "
          "take most of the time.")
    if not all(r[0] for r in results):
        sys.exit("ask: hypotheses differ with and without drafts")
    if not any(r[1] for r in results):
        sys.exit("ask: no draft reached any request; is the draft node running?")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
