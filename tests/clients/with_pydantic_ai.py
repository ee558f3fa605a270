"""Pydantic AI."""
# /// script
# dependencies = ["pydantic-ai-slim[openai]"]
# ///
import asyncio
import typing

import pydantic
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from checks import API, KEY, MODEL, check, expect, main


class Animal(pydantic.BaseModel):
    name: typing.Annotated[str, pydantic.Field(max_length=8)]
    legs: int


def agent(**fields):
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=API, api_key=KEY))
    return Agent(model, **dict(dict(model_settings=dict(max_tokens=200, seed=1)), **fields))


@check
def text():
    answer = agent(instructions="You tell stories.", model_settings=dict(max_tokens=16, temperature=0.5)).run_sync("Tell one.")
    expect(answer.output and answer.usage, answer)


@check
def a_conversation_goes_on():
    one = agent()
    first = one.run_sync("Tell one.")
    expect(one.run_sync("Go on.", message_history=first.all_messages()).output)


@check
def streams():
    async def ask():
        async with agent().run_stream("Tell one.") as answer:
            return [text async for text in answer.stream_text(delta=True)]

    expect("".join(asyncio.run(ask())))


@check
def native_output():
    expect(isinstance(agent(output_type=NativeOutput(Animal)).run_sync("One animal.").output, Animal))


@check
def prompted_output():
    """The request is served; whether a small model follows the prompt is another matter."""
    try:
        agent(output_type=PromptedOutput(Animal), retries=0).run_sync("One animal.")
    except Exception as error:
        expect("retries" in str(error) or "token limit" in str(error), error)


@check
def tools():
    one = agent()
    one.tool_plain(lambda city: city, name="weather")
    one.run_sync("What is the weather?")


@check
def output_by_a_tool():
    expect(isinstance(agent(output_type=ToolOutput(Animal)).run_sync("One animal.").output, Animal))


main()
