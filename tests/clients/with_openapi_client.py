"""openapi-python-client: a client that is generated from /openapi.json."""
# /// script
# dependencies = ["openapi-python-client", "attrs", "httpx", "python-dateutil"]
# ///
import importlib
import json
import pathlib
import subprocess
import sys

from checks import FOLDER, KEY, MODEL, URL, check, expect, main

CLIENT = pathlib.Path(FOLDER, "generated")
OPERATIONS = 16


def generate():
    run = subprocess.run(["openapi-python-client", "generate", "--url", f"{URL}/openapi.json", "--output-path", CLIENT, "--meta", "none",
                          "--overwrite"], capture_output=True, text=True)
    expect(run.returncode == 0, run.stdout + run.stderr)
    return run.stdout + run.stderr


def part(name):
    if not CLIENT.exists():
        generate()
    if FOLDER not in sys.path:
        sys.path.insert(0, FOLDER)
    return importlib.import_module(f"generated.{name}")


def call(tag, name, body=None, **arguments):
    """The answer of an operation: (status, an object of the generated classes)."""
    client = part("client").AuthenticatedClient(base_url=URL, token=KEY)
    operation = part(f"api.{tag}.{name}")
    if body is not None:
        arguments["body"] = getattr(part("models"), body.pop("class")).from_dict(body)
    answer = operation.sync_detailed(client=client, **arguments)
    return answer.status_code, answer.parsed


@check
def generates_every_operation_without_a_warning():
    told = generate()
    expect("arning" not in told and "Unable" not in told, told)
    found = [path for path in (CLIENT / "api").glob("*/*.py") if path.name != "__init__.py"]
    expect(len(found) >= OPERATIONS, found)


@check
def completion():
    status, answer = call("completions", "completions", {"class": "CompletionRequest", "prompt": "Once", "max_tokens": 8, "logprobs": 2})
    expect(status == 200 and answer.choices[0].text and len(answer.choices[0].logprobs.tokens) == 8, answer)
    expect(answer.usage.completion_tokens == 8 and answer.usage.speculation.method and answer.timings.total_ms > 0, answer)


@check
def beams():
    body = {"class": "CompletionRequest", "prompt": "Once", "max_tokens": 8, "use_beam_search": True, "n": 2}
    status, answer = call("completions", "completions", body)
    expect(status == 200 and answer.choices[0].score >= answer.choices[1].score, answer)


@check
def chat():
    body = {"class": "ChatRequest", "model": MODEL, "messages": [{"role": "user", "content": "Tell a story."}], "max_tokens": 8,
            "response_format": {"type": "text"}, "stop": ["zzz"], "temperature": 0.5}
    status, answer = call("completions", "chat_completions", body)
    expect(status == 200 and answer.choices[0].message.content and answer.choices[0].message.role == "assistant", answer)


@check
def tokens():
    status, ids = call("tokens", "tokenize", {"class": "TokenizeRequest", "prompt": "Once upon", "return_token_strs": True})
    expect(status == 200 and ids.count == len(ids.tokens) == len(ids.token_strs), ids)
    status, text = call("tokens", "detokenize", {"class": "DetokenizeRequest", "tokens": ids.tokens})
    expect(status == 200 and "Once upon" in text.prompt, text)


@check
def models():
    status, answer = call("models", "models")
    expect(status == 200 and answer.data[0].id == MODEL and "beam_search" in answer.data[0].capabilities.decodings, answer)
    expect(call("models", "model", id=MODEL)[1].id == MODEL)


@check
def errors():
    status, answer = call("models", "model", id="other")
    expect(status == 404 and answer.error.code == "model_not_found", answer)
    status, answer = call("completions", "completions", {"class": "CompletionRequest", "prompt": "Once", "temperature": 9})
    expect(status == 400 and answer.error.code == "invalid_value" and answer.error.param == "temperature", answer)


@check
def state():
    expect(call("server", "health")[1].status == "ok" and call("server", "ready")[1].status == "ready")
    expect(call("server", "version")[1].version)
    status, cluster = call("administration", "cluster")
    expect(status == 200 and cluster.replicas[0].kv.blocks_total > 0 and cluster.replicas[0].ranks[0].pid > 0, cluster)
    expect(json.dumps(cluster.to_dict()))


main()
