"""LiteLLM: its SDK and its proxy."""
# /// script
# dependencies = ["litellm[proxy]"]
# ///
import asyncio
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import time
import typing
import urllib.error
import urllib.request

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no download
import litellm  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402

from checks import API, FOLDER, KEY, MESSAGES, MODEL, check, expect, main  # noqa: E402

START_LIMIT_S = 120
PROXY_KEY = "sk-of-the-proxy"


class Animal(pydantic.BaseModel):
    name: typing.Annotated[str, pydantic.Field(max_length=8)]
    legs: int


def chat(provider="hosted_vllm", **fields):
    return litellm.completion(**dict(dict(model=f"{provider}/{MODEL}", api_base=API, api_key=KEY, messages=MESSAGES, max_tokens=16,
                                          seed=1), **fields))


@contextlib.contextmanager
def proxy():
    """The URL of LiteLLM's proxy before the server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = pathlib.Path(FOLDER, "litellm.yaml")
    config.write_text(json.dumps({"model_list": [{"model_name": "mine", "litellm_params": {
        "model": f"hosted_vllm/{MODEL}", "api_base": API, "api_key": KEY}}]}))
    with open(pathlib.Path(FOLDER, "litellm.log"), "wb") as log:
        process = subprocess.Popen(["litellm", "--config", config, "--host", "127.0.0.1", "--port", str(port)], stdout=log, stderr=log,
                                   env=dict(os.environ, LITELLM_MASTER_KEY=PROXY_KEY))
    try:
        until = time.monotonic() + START_LIMIT_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness").close()
                break
            except (urllib.error.URLError, OSError):
                expect(process.poll() is None and time.monotonic() < until, pathlib.Path(FOLDER, "litellm.log").read_text()[-800:])
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@check
def completion():
    for provider in ("hosted_vllm", "openai", "litellm_proxy"):
        answer = chat(provider, temperature=0.5, top_p=0.9, n=2, stop=["zzz"], user="me", presence_penalty=0.1)
        expect(answer.choices[1].message.content and answer.usage.completion_tokens, answer)


@check
def an_answer_is_a_message_of_the_next_request():
    answer = chat().choices[0].message
    for message in (answer, answer.model_dump(), json.loads(answer.model_dump_json())):
        expect(chat(messages=[*MESSAGES, message, MESSAGES[0]]).choices[0].message.content)


@check
def streams():
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    expect("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == chat().choices[0].message.content)
    expect(litellm.stream_chunk_builder(chunks, messages=MESSAGES).usage.completion_tokens == 16)


@check
def asynchronous():
    async def ask():
        return await litellm.acompletion(model=f"openai/{MODEL}", api_base=API, api_key=KEY, messages=MESSAGES, max_tokens=8)

    expect(asyncio.run(ask()).choices[0].message.content)


@check
def text_completion():
    fields = dict(model=f"text-completion-openai/{MODEL}", api_base=API, api_key=KEY, prompt="Once", max_tokens=8, logprobs=2)
    expect(litellm.text_completion(**fields).choices[0].text)
    expect(list(litellm.text_completion(**fields, stream=True)))


@check
def structured():
    answer = chat(response_format=Animal, max_tokens=200)
    Animal.model_validate_json(answer.choices[0].message.content)


@check
def beams():
    expect(len(chat(n=2, extra_body={"use_beam_search": True, "beam_width": 4}).choices) == 2)


@check
def hints():
    expect(chat("openai", reasoning_effort="low", allowed_openai_params=["reasoning_effort"], metadata={"a": "b"},
                extra_body={"prompt_cache_key": "k"}).choices)


@check
def errors():
    for error, fields in ((litellm.NotFoundError, dict(model="hosted_vllm/other")), (litellm.BadRequestError, dict(temperature=9))):
        try:
            chat(**fields)
        except error:
            pass
        else:
            raise AssertionError(f"{fields} is accepted")


@check
def by_the_proxy():
    with proxy() as url:
        client = openai.OpenAI(base_url=url, api_key=PROXY_KEY)
        fields = dict(model="mine", messages=MESSAGES, max_tokens=8, user="me")
        answer = client.chat.completions.create(**fields)
        expect(answer.choices[0].message.content, answer)
        answer = client.chat.completions.create(**dict(fields, messages=[*MESSAGES, answer.choices[0].message.model_dump(), MESSAGES[0]]))
        expect(answer.choices[0].message.content, answer)
        chunks = list(client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
        expect("".join(c.choices[0].delta.content or "" for c in chunks if c.choices))
        health = urllib.request.Request(f"{url}/health", headers={"Authorization": f"Bearer {PROXY_KEY}"})
        with urllib.request.urlopen(health) as reply:
            expect(json.load(reply)["healthy_count"] == 1, "the proxy calls the server unhealthy")


@check
def tools():
    function = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    expect(chat(tools=[{"type": "function", "function": function}], tool_choice="auto").choices)


main()
