"""Simon Willison's llm, its commands."""
# /// script
# dependencies = ["llm"]
# ///
import json
import os
import pathlib
import subprocess

from checks import API, FOLDER, KEY, MODEL, check, expect, main

USER = pathlib.Path(FOLDER, "llm")


def llm(*arguments):
    result = subprocess.run(["llm", *arguments], env=dict(os.environ, LLM_USER_PATH=str(USER), OPENAI_API_KEY=KEY),
                            stdin=subprocess.DEVNULL, capture_output=True, text=True)
    expect(result.returncode == 0, result.stderr[-600:])
    return result.stdout


def prompt(*arguments):
    USER.mkdir(exist_ok=True)
    (USER / "extra-openai-models.yaml").write_text(json.dumps([
        {"model_id": "chat", "model_name": MODEL, "api_base": API},
        {"model_id": "schemas", "model_name": MODEL, "api_base": API, "supports_schema": True},
        {"model_id": "tools", "model_name": MODEL, "api_base": API, "supports_tools": True},
        {"model_id": "completion", "model_name": MODEL, "api_base": API, "completion": True}]))
    return llm("prompt", *arguments)


@check
def chat():
    expect(prompt("-m", "chat", "-s", "You tell stories.", "Tell one.", "-o", "max_tokens", "16", "-o", "temperature", "0.5"))


@check
def chat_that_does_not_stream():
    expect(prompt("-m", "chat", "--no-stream", "Tell one.", "-o", "max_tokens", "16", "-o", "seed", "1"))


@check
def a_conversation_goes_on():
    expect(prompt("-m", "chat", "Tell one.", "-o", "max_tokens", "16"))
    expect(prompt("-c", "Go on.", "-o", "max_tokens", "16"))


@check
def completions():
    expect(prompt("-m", "completion", "Once", "-o", "max_tokens", "16"))


@check
def schemas():
    schema = {"type": "object", "properties": {"legs": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["legs"]}
    json.loads(prompt("-m", "schemas", "One animal.", "--schema", json.dumps(schema), "-o", "max_tokens", "200"))


@check
def tools():
    expect(prompt("-m", "tools", "What time is it?", "-T", "llm_time", "-o", "max_tokens", "64"))


main()
