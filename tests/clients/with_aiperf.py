"""AIPerf, NVIDIA's benchmark."""
# /// script
# dependencies = ["aiperf"]
# ///
import json
import os
import pathlib
import subprocess

from checks import FOLDER, MODEL, URL, check, expect, main
from local_tokenizer import tokenizer_folder

REQUESTS = 8
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.endswith("_OFFLINE")}  # offline, it takes a path for a name


def benchmark(name, *options):
    out = pathlib.Path(FOLDER, name)
    run = subprocess.run(["aiperf", "profile", "--model", MODEL, "--url", URL, "--tokenizer", tokenizer_folder(), "--ui", "none",
                          "--request-count", str(REQUESTS), "--concurrency", "2", "--isl", "24", "--osl", "12", "--artifact-dir", out,
                          *options],
                         env=ENVIRONMENT, capture_output=True, text=True)
    expect(run.returncode == 0, (run.stderr + run.stdout)[-900:])
    report = json.loads(next(out.glob("**/profile_export_aiperf.json")).read_text())
    expect(report["request_count"]["avg"] == REQUESTS and not report.get("error_summary"), (run.stdout + run.stderr)[-900:])


@check
def streamed_chats():
    benchmark("chat", "--endpoint-type", "chat", "--streaming")


@check
def chats_with_the_usage_of_each_event():
    benchmark("usage", "--endpoint-type", "chat", "--streaming", "--use-server-token-count", "--per-chunk-usage")


@check
def completions_of_a_fixed_length():
    benchmark("completions", "--endpoint-type", "completions", "--streaming", "--extra-inputs", "ignore_eos:true",
              "--extra-inputs", "min_tokens:12")


@check
def completions_that_do_not_stream():
    benchmark("plain", "--endpoint-type", "completions", "--use-legacy-max-tokens")


main()
