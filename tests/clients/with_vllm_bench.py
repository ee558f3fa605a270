"""vLLM's benchmark, its functions that send requests (vllm/benchmarks/lib), as `vllm bench serve` calls them. The command itself
needs PyTorch; this file of it does not."""
# /// script
# dependencies = ["aiohttp", "regex", "tqdm"]
# [tool.clients]
# alone = ["vllm"]
# large = "its package has 340 MB"
# ///
import asyncio
import importlib.metadata
import importlib.util
import sys

import aiohttp

from checks import API, MESSAGES, MODEL, check, expect, main


def functions():
    name = "vllm/benchmarks/lib/endpoint_request_func.py"
    path = next(file.locate() for file in importlib.metadata.files("vllm") if str(file) == name)
    spec = importlib.util.spec_from_file_location("endpoint_request_func", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VLLM = functions()


def send(backend, path, **fields):
    async def ask():
        given = VLLM.RequestFuncInput(**dict(dict(prompt="Once upon a time", api_url=API + path, prompt_len=5, output_len=12, model=MODEL),
                                             **fields))
        async with aiohttp.ClientSession() as session:
            return await VLLM.ASYNC_REQUEST_FUNCS[backend](given, session)

    answer = asyncio.run(ask())
    expect(answer.success and answer.ttft > 0, answer.error)
    return answer


@check
def completions():
    expect(send("vllm", "/completions", ignore_eos=True, request_id="bench-0").output_tokens == 12)


@check
def completions_with_scores():
    send("openai", "/completions", logprobs=2)


@check
def completions_with_sampling():
    send("openai", "/completions", extra_body=dict(temperature=0.7, top_p=0.9, top_k=10, min_p=0.1, repetition_penalty=1.1))


@check
def chats():
    expect(send("openai-chat", "/chat/completions", ignore_eos=True).output_tokens == 12)
    send("openai-chat", "/chat/completions", chat_messages=MESSAGES)


@check
def responses():
    send("openai-responses", "/responses")


main()
