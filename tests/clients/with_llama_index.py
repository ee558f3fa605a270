"""LlamaIndex's OpenAILike."""
# /// script
# dependencies = ["llama-index-llms-openai-like"]
# ///
import asyncio
import typing

import pydantic
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

from checks import API, KEY, MODEL, check, expect, main

MESSAGES = [ChatMessage(role="system", content="You tell stories."), ChatMessage(role="user", content="Tell one.")]


class Animal(pydantic.BaseModel):
    name: typing.Annotated[str, pydantic.Field(max_length=8)]
    legs: int


def model(chat=True, **fields):
    return OpenAILike(**dict(dict(model=MODEL, api_base=API, api_key=KEY, is_chat_model=chat, max_tokens=16, context_window=512), **fields))


@check
def chat():
    expect(model(temperature=0.5).chat(MESSAGES).message.content)


@check
def an_answer_goes_on():
    answer = model().chat(MESSAGES).message
    expect(model().chat([*MESSAGES, answer, MESSAGES[1]]).message.content)


@check
def chat_streams():
    expect(list(model().stream_chat(MESSAGES))[-1].message.content)


@check
def completions():
    expect(model(chat=False).complete("Once").text)
    expect(list(model(chat=False).stream_complete("Once"))[-1].text)


@check
def asynchronous():
    expect(asyncio.run(model().achat(MESSAGES)).message.content)


@check
def structured():
    one = model(should_use_structured_outputs=True, max_tokens=200, is_function_calling_model=False)
    expect(isinstance(one.as_structured_llm(Animal).chat(MESSAGES).raw, Animal))


@check
def beams():
    expect(model(additional_kwargs={"extra_body": {"use_beam_search": True}}, temperature=0).chat(MESSAGES).message.content)


@check
def tools():
    from llama_index.core.tools import FunctionTool

    def weather(city: str) -> str:
        """The weather of a city."""
        return city

    one = model(is_function_calling_model=True, max_tokens=64)
    expect(one.chat_with_tools([FunctionTool.from_defaults(fn=weather)], user_msg="What is the weather?"))


main()
