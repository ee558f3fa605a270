#!/usr/bin/env python3
"""Makes requests.jsonl of what run.py --record has written: one request of each kind, with long texts cut.

    python3 tests/clients/condense.py recorded.jsonl > tests/clients/requests.jsonl
"""
import json
import sys

LONGEST = 300  # characters of a text
HEADERS = ("accept", "content-type", "user-agent")


def cut(value):
    if isinstance(value, str):
        return value if len(value) <= LONGEST else value[:LONGEST] + "..."
    if isinstance(value, list):
        return [cut(inner) for inner in value]
    return {name: cut(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def kind(value):
    """What makes two requests different: the fields and roles, not their texts and numbers."""
    if isinstance(value, dict):
        return tuple((name, inner if name == "role" else kind(inner)) for name, inner in sorted(value.items()))
    if isinstance(value, list):
        return tuple(dict.fromkeys(kind(inner) for inner in value))
    return type(value).__name__


def main():
    seen = set()
    for path in sys.argv[1:]:
        for line in open(path, encoding="utf8"):
            record = json.loads(line)
            of = (record["client"].split()[0], record["method"], record["path"], kind(record["body"]))
            if record["code"] == "unknown_route" or of in seen:
                continue
            seen.add(of)
            record["headers"] = {name.lower(): value for name, value in record["headers"].items() if name.lower() in HEADERS}
            record["body"] = cut(record["body"])
            print(json.dumps({name: value for name, value in record.items() if value not in (None, [], "")}, ensure_ascii=False))


if __name__ == "__main__":
    main()
