"""GuideLLM, a benchmark."""
# /// script
# dependencies = ["guidellm"]
# [tool.clients]
# large = "needs PyTorch, 6 GB"
# ///
import json
import pathlib
import subprocess

from checks import FOLDER, MODEL, URL, check, expect, main
from local_tokenizer import tokenizer_folder


def benchmark(path):
    out = pathlib.Path(FOLDER, path.strip("/").replace("/", "-") + ".json")
    run = subprocess.run(
        ["guidellm", "run", "--backend", f"kind=openai_http,target={URL},model={MODEL},request_format={path}",
         "--profile", "kind=concurrent,streams=2", "--constraint", "kind=max_requests,count=6",
         "--tokenizer", f"kind=huggingface_auto,model={tokenizer_folder()}",
         "--data", "kind=synthetic_text,prompt_tokens=24,output_tokens=12", "--output", f"kind=json,path={out}", "--disable-console"],
        capture_output=True, text=True)
    expect(run.returncode == 0, (run.stderr + run.stdout)[-900:])
    totals = json.loads(out.read_text())["benchmarks"][0]["metrics"]["request_totals"]
    expect(totals["successful"] == 6 and totals["errored"] == 0, totals)


@check
def completions():
    benchmark("/v1/completions")


@check
def chat_completions():
    benchmark("/v1/chat/completions")


main()
