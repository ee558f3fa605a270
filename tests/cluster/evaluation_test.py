#!/usr/bin/env python3
"""Optional: lm-evaluation-harness, unchanged, scores the choices of a task by `echo` and `logprobs`. Needs the package lm_eval:

  pip install "lm_eval[api]"

Run by hand, it prints the harness's table."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from cluster import ROOT, Cluster
from stopwatch import at_most

# (columns, question about a column, that column, the column of the condition, its value)
QUESTIONS = [
    ("player, position, school, height", "What school did {} play for?", "school", "player", "Grant Hill"),
    ("player, position, school, height", "What is the height of {}?", "height", "player", "John Wallace"),
    ("player, position, school, height", "What position does {} play?", "position", "player", "Marcus Camby"),
    ("year, title, role, director", "What was the title in {}?", "title", "year", "1999"),
    ("year, title, role, director", "What role was played in {}?", "role", "year", "2004"),
    ("year, title, role, director", "Who was the director in {}?", "director", "year", "1987"),
    ("team, city, stadium, capacity", "What is the capacity of {}?", "capacity", "stadium", "Rogers Centre"),
    ("team, city, stadium, capacity", "Which city is {} from?", "city", "team", "Toronto FC"),
    ("country, capital, population, area", "What is the capital of {}?", "capital", "country", "Norway"),
    ("country, capital, population, area", "What is the population of {}?", "population", "country", "Chile"),
    ("song, artist, album, year", "Which album has the song {}?", "album", "song", "Yesterday"),
    ("song, artist, album, year", "Who is the artist of {}?", "artist", "song", "Thriller"),
]
# A Jinja expression is text to the harness; the YAML needs no library.
TASK = """task: sql_column
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/sql_column.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{context}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
target_delimiter: " "
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""


def documents():
    for columns, question, wanted, key, value in QUESTIONS:
        others = [c for c in columns.split(", ") if c != key]
        yield dict(context=f"columns: {columns}\nquestion: {question.format(value)}\nsql:", answer=others.index(wanted),
                   choices=[f'SELECT {c} WHERE {key} = "{value.lower()}"' for c in others])


class Evaluation(unittest.TestCase):
    def test_the_harness_scores_choices(self):
        pair = {role: ROOT / f"deploy/demo/wikisql-{role}" for role in ("target", "draft")}
        with Cluster(tp=1, **pair) as cluster, tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "sql_column.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents()))
            (folder / "sql_column.yaml").write_text(TASK.replace("FOLDER", name))
            run = subprocess.run(
                [sys.executable, "-m", "lm_eval", "--model", "gguf", "--model_args", f"base_url=http://127.0.0.1:{cluster.port}",
                 "--tasks", "sql_column", "--include_path", name, "--output_path", f"{name}/out", "--log_samples"],
                env=dict(os.environ, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=f"{name}/hf"),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=at_most(300))
            self.assertEqual(run.returncode, 0, run.stderr)
            print(run.stdout)
            samples = [json.loads(line) for path in folder.glob("out/**/samples_*.jsonl") for line in path.read_text().splitlines()]
            self.assertEqual(len(samples), len(QUESTIONS))
            right = 0
            for sample in samples:
                doc, got = sample["doc"], [float(choice[0][0]) for choice in sample["resps"]]
                for choice, score in zip(doc["choices"], got, strict=True):
                    self.assertAlmostEqual(score, self.scored(cluster, doc["context"], " " + choice), places=4)
                right += got.index(max(got)) == doc["answer"]
            self.assertGreaterEqual(right, 9)  # of 12; by chance 4

    def scored(self, cluster, context, continuation):
        """The log-probability of the continuation."""
        answer = cluster.api.complete(dict(prompt=context + continuation, max_tokens=0, echo=True, logprobs=0))
        shown = answer["choices"][0]["logprobs"]
        return sum(score for score, offset in zip(shown["token_logprobs"], shown["text_offset"]) if offset >= len(context))


if __name__ == "__main__":
    unittest.main(verbosity=2)
