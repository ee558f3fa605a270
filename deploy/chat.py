#!/usr/bin/env python3
"""Chats with a Coppice cluster. Uses only the Python standard library.

  chat.py [OPTIONS] FILE   asks the questions of a JSON lines file and prints the answers as they come. A line is
                           {"title": ..., "path": "/v1/chat/completions" or "/v1/completions", "body": {the request}}
  chat.py [OPTIONS]        a chat in the terminal: reads lines, keeps the conversation. An empty line begins a new one; Ctrl-D ends

A question of the file that is longer than the model's context is left out.
Exit status 1 if a request fails or an answer is empty, 2 if an argument or the file cannot be used.
"""
import argparse
import http.client
import json
import sys
import time

import api_connection

CHAT = "/v1/chat/completions"


class Failed(Exception):
    """A request was refused or broke off."""


class TooLong(Failed):
    """The request does not fit into the context of the model."""


def events(server, path, body):
    """Posts the body and yields the JSON of each event of the answer."""
    connection = server.connect(timeout_s=300)
    try:
        connection.request("POST", path, json.dumps(dict(body, stream=True, stream_options={"include_usage": True})),
                           server.headers)
        answer = connection.getresponse()
        if answer.status != 200:
            text = answer.read().decode(errors="replace").strip()
            raise (TooLong if '"context_length_exceeded"' in text else Failed)(f"{answer.status} {text}")
        for line in answer:
            data = line.removeprefix(b"data: ").strip()
            if data == b"[DONE]":
                return
            if line.startswith(b"data: "):
                event = json.loads(data)
                if "error" in event:
                    raise Failed(event["error"].get("message", data.decode()))
                yield event
        raise Failed("the answer broke off")
    except (OSError, http.client.HTTPException) as error:
        raise Failed(f"{server.url} does not answer: {error!r}") from error
    finally:
        connection.close()


def shown(choice):
    """What an event adds to a choice, as text: of a call its name and, between brackets, its arguments."""
    delta = choice.get("delta", {})
    text = choice.get("text") or delta.get("content") or ""
    for call in delta.get("tool_calls", []):
        function = call["function"]
        text += (f"{', ' if call['index'] else ''}{function['name']} " if "name" in function else "") + function["arguments"]
    return text


def ask(server, path, body):
    """Prints the text of choice 0 as it comes, then the other choices. Returns (text of choice 0, tokens of the answer)."""
    texts, scores, tokens = {}, {}, 0
    for event in events(server, path, body):
        for choice in event["choices"]:
            piece = shown(choice)
            texts[choice["index"]] = texts.get(choice["index"], "") + piece
            scores[choice["index"]] = choice.get("score", scores.get(choice["index"]))
            if choice["index"] == 0:
                print(piece, end="", flush=True)
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    print()
    for i in sorted(texts) if len(texts) > 1 else ():
        if scores[i] is not None:
            print(f"  {scores[i]:8.4f}  {'(above)' if i == 0 else texts[i].strip()}")
    return texts.get(0, ""), tokens


def expected(question):
    """What a line of the file should have and lacks, or None."""
    for field in ("title", "path"):
        if not isinstance(question.get(field), str):
            return f'an object with "{field}", a text'
    if not isinstance(question.get("body"), dict):
        return 'an object with "body", an object'
    if prompt_of(question["body"]) is None:
        return '"prompt" in the body, or "messages" whose last has "content"'
    return None


def prompt_of(body):
    """The text of a request that is shown above its answer, or None."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return body.get("prompt") or (last.get("content") if isinstance(last, dict) else None)


def ask_file(server, questions):
    for i, question in enumerate(questions):
        body = question["body"]
        print(f"\n[{i + 1}/{len(questions)}] {question['title']}\n    | {prompt_of(body)}", flush=True)
        start = time.monotonic()
        try:
            text, tokens = ask(server, question["path"], body)
        except TooLong:
            print("  (left out: it is longer than the context of the model)", flush=True)
            continue
        seconds = time.monotonic() - start
        print(f"  ({tokens} tokens, {seconds:.1f} s)", flush=True)
        if not text.strip():
            raise Failed(f"question {i + 1}: the answer is empty")


def converse(server):
    messages = []
    while True:
        try:
            line = input("\nyou> ").strip()
        except EOFError:
            print()
            return
        if not line:
            messages = []
            print("(a new conversation)")
            continue
        messages.append(dict(role="user", content=line))
        try:
            text, _ = ask(server, CHAT, dict(messages=messages, max_tokens=400, temperature=0.7, top_p=0.9))
            messages.append(dict(role="assistant", content=text))
        except Failed as error:
            messages.pop()
            print(f"chat: {error}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    api_connection.add_options(parser)
    parser.add_argument("file", nargs="?")
    args = parser.parse_args()
    server = api_connection.Server(args)
    if args.file:
        ask_file(server, api_connection.read_questions(args.file, expected))
    else:
        converse(server)


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"chat: {error}")
    except api_connection.Fault as fault:
        print(f"chat: {fault}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
