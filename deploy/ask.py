#!/usr/bin/env python3
"""Asks a Coppice cluster the questions of a JSON lines file, each with drafts and without, and prints every
hypothesis, its score, and what the drafts saved. Python standard library only.

A line of the file: {"prompt": ..., "title": ..., "body": {further fields of POST /v1/completions}}.
Exit status 1 when a request fails, when the hypotheses with and without drafts differ, or when no draft was used.
"""
import argparse
import json
import sys
import time
import urllib.error
import urllib.request


def complete(url, body):
    """POST /v1/completions -> (answer, wall seconds). SystemExit with the server's own message when it refuses."""
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    start = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as refused:
        sys.exit(f"ask: {refused.code} {refused.read().decode().strip()}")
    except OSError as error:
        sys.exit(f"ask: {url} does not answer: {error}")
    return answer, time.monotonic() - start


def hypotheses(answer):
    """What must be equal with and without drafts: ids, scores and ends of the choices, in order."""
    return [(c.get("token_ids"), c["text"], c.get("score"), c.get("joint_logprob"), c["finish_reason"])
            for c in answer["choices"]]


def describe(name, answer, seconds):
    spec = answer["usage"]["speculation"]
    per_pass = spec["layers_per_pass"]
    return (f"  {name:<15}{spec['target_passes']:>3} target passes, "
            f"{'-' if per_pass is None else format(per_pass, '.2f')} layers each, {seconds * 1000:7.1f} ms"
            f"  ({spec['method']}, {spec['accepted_nodes']} of {spec['drafted_nodes']} drafted nodes accepted)")


def ask(url, question, number, total):
    """Prints one question; returns (hypotheses equal, drafted nodes, layers and passes with drafts)."""
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("file")
    args = parser.parse_args()
    with open(args.file, encoding="utf8") as lines:
        questions = [json.loads(line) for line in lines if line.strip()]
    results = [ask(args.url, question, i + 1, len(questions)) for i, question in enumerate(questions)]
    layers, passes = sum(r[2] for r in results), sum(r[3] for r in results)
    print(f"\nIn all {layers} layers in {passes} target passes with drafts ({layers / max(passes, 1):.2f} layers per pass; "
          "without drafts it is 1).\nA pass of this small target takes about a millisecond; with a large one the passes "
          "are the time.")
    if not all(r[0] for r in results):
        sys.exit("ask: hypotheses differ with and without drafts")
    if not any(r[1] for r in results):
        sys.exit("ask: no draft reached any request; is the draft node running?")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
