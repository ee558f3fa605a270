"""lm-evaluation-harness: local-completions (scores and texts) and local-chat-completions, with a task made here."""
# /// script
# dependencies = ["lm_eval[api]", "transformers"]
# ///
import json
import os
import pathlib
import subprocess

from checks import API, FOLDER, KEY, MODEL, check, expect, main
from local_tokenizer import tokenizer_folder

QUESTIONS = [dict(context="Once upon a time, there was a little", choices=["girl named Lily", "quarterly revenue"], answer=0),
             dict(context="They went to the park to", choices=["yzxq vvkw", "play"], answer=1)]
COMMON = "dataset_path: json\ndataset_kwargs: {data_files: {test: %s/questions.jsonl}}\ntest_split: test\n" % FOLDER
TASKS = {
    "choose": """task: choose
output_type: multiple_choice
doc_to_text: "{{context}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
""",
    "write": """task: write
output_type: generate_until
doc_to_text: "{{context}}"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: [".", "\\n\\n"], max_gen_toks: 12, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""}


def samples(model, task, *options, **arguments):
    """The samples of a task by this model of the harness."""
    folder = pathlib.Path(FOLDER)
    (folder / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    (folder / f"{task}.yaml").write_text(TASKS[task] + COMMON)
    out = folder / f"out-{model}-{task}-{len(arguments)}"
    path = "/chat/completions" if "chat" in model else "/completions"
    arguments = dict(dict(model=MODEL, base_url=API + path, num_concurrent=1, max_retries=1, tokenizer=tokenizer_folder()), **arguments)
    run = subprocess.run(["lm_eval", "run", "--model", model, "--tasks", task, "--include_path", folder, "--output_path", out,
                          "--log_samples", "--model_args", ",".join(f"{k}={v}" for k, v in arguments.items()), *options],
                         env=dict(os.environ, OPENAI_API_KEY=KEY), capture_output=True, text=True)
    expect(run.returncode == 0, run.stderr[-900:])
    found = [json.loads(line) for path in out.glob("**/samples_*.jsonl") for line in path.read_text().splitlines()]
    expect(len(found) == len(QUESTIONS), run.stderr[-900:])
    return found


@check
def scores_by_local_completions():
    """Its tokenizer sees other tokens, so these are sums over other ends of the text; that they come is what is checked."""
    for sample in samples("local-completions", "choose", tokenized_requests="False", tokenizer_backend="huggingface"):
        expect(all(float(choice[0][0]) <= 0 for choice in sample["resps"]), sample)


@check
def texts_by_local_completions():
    for sample in samples("local-completions", "write", tokenized_requests="False", tokenizer_backend="huggingface"):
        expect(isinstance(sample["resps"][0][0], str), sample)


@check
def texts_by_local_chat_completions():
    for sample in samples("local-chat-completions", "write", "--apply_chat_template"):
        expect(isinstance(sample["resps"][0][0], str), sample)


@check(not_served="/tokenizer_info")
def scores_with_the_tokenizer_of_the_server():
    found = samples("local-completions", "choose", tokenizer_backend="remote", tokenized_requests="True")
    expect([max(range(2), key=lambda i: float(sample["resps"][i][0][0])) for sample in found] == [q["answer"] for q in QUESTIONS], found)


main()
