"""AutoGen's agents by its OpenAI client."""
# /// script
# dependencies = ["autogen-ext[openai]", "autogen-agentchat"]
# ///
import asyncio
import typing

import pydantic
from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import SystemMessage, UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient

from checks import API, KEY, MODEL, check, expect, main

INFO = {"vision": False, "function_calling": True, "json_output": True, "family": "unknown", "structured_output": True}


class Animal(pydantic.BaseModel):
    name: typing.Annotated[str, pydantic.Field(max_length=8)]
    legs: int


def client():
    return OpenAIChatCompletionClient(model=MODEL, base_url=API, api_key=KEY, model_info=INFO, max_tokens=200)


MESSAGES = [SystemMessage(content="You tell stories."), UserMessage(content="Tell one.", source="user")]


def weather(city: str) -> str:
    """The weather of a city."""
    return city


@check
def create():
    expect(asyncio.run(client().create(MESSAGES)).content)


@check
def streams():
    async def ask():
        return [part async for part in client().create_stream(MESSAGES)]

    expect(asyncio.run(ask())[-1].content)


@check
def json_output():
    expect(asyncio.run(client().create(MESSAGES, json_output=True)).content.startswith("{"))
    answer = asyncio.run(client().create(MESSAGES, json_output=Animal))
    Animal.model_validate_json(answer.content)


@check
def an_agent_has_two_turns():
    async def talk():
        agent = AssistantAgent("teller", client())
        await agent.run(task="Tell one.")
        return await agent.run(task="Go on.")

    expect(asyncio.run(talk()).messages[-1].content)


@check
def tools():
    asyncio.run(AssistantAgent("teller", client(), tools=[weather]).run(task="What is the weather?"))


main()
