#!/usr/bin/env python3
"""An example: a history of items becomes the ten likeliest next ones, with names and scores, through OpenAI's Python client.

  lab/bench/recommendation/make_recommender.py --out DIR
  coppice-catalogue compile --items=DIR/items.jsonl --model=DIR/target --output=DIR/items.cat
  deploy/cluster.sh up --cluster DIR/cluster.toml
  lab/bench/recommendation/recommend.py DIR/items.jsonl B0012345 B0067890 B0500000

Needs the packages openai and, for make_recommender.py, numpy. The model is synthetic, so what it recommends means nothing.
"""
import argparse
import json
import sys

from openai import OpenAI


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("items", metavar="FILE", help="the items, as coppice-catalogue reads them")
    parser.add_argument("history", nargs="+", metavar="ID", help="of an item; the last one is the newest")
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1", help="of the server (%(default)s)")
    parser.add_argument("--catalogue", default="items", metavar="NAME", help="of the server (%(default)s)")
    parser.add_argument("--beam-width", type=int, default=64, help="(%(default)s)")
    return parser.parse_args()


def main():
    chosen = parse_arguments()
    with open(chosen.items, encoding="utf8") as lines:
        items = {row["id"]: row for row in map(json.loads, lines) if row["id"] in chosen.history}
    for item in chosen.history:
        if item not in items:
            sys.exit(f"recommend: {chosen.items}: no item {item}")
        print("has", item, items[item]["name"])
    client = OpenAI(base_url=chosen.url, api_key="none")
    answer = client.completions.create(
        model=client.models.list().data[0].id, prompt=[token for item in chosen.history for token in items[item]["tokens"]], n=10,
        extra_body={"use_beam_search": True, "beam_width": chosen.beam_width,
                    "catalogue": {"name": chosen.catalogue, "exclude": chosen.history}})
    for choice in answer.choices:
        print(f"{choice.score:7.3f} {choice.item['id']} {choice.item['name']}")


if __name__ == "__main__":
    main()
