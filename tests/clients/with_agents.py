"""OpenAI's Agents SDK, by chat completions."""
# /// script
# dependencies = ["openai-agents"]
# ///
import asyncio
import typing

import agents
import openai
import pydantic

from checks import API, KEY, MODEL, check, expect, main

agents.set_tracing_disabled(True)
SETTINGS = agents.ModelSettings(max_tokens=200, temperature=0.8, top_p=0.9)


class Animal(pydantic.BaseModel):
    name: typing.Annotated[str, pydantic.Field(max_length=8)]
    legs: int


@agents.function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return city


def agent(kind=agents.OpenAIChatCompletionsModel, **fields):
    client = openai.AsyncOpenAI(base_url=API, api_key=KEY)
    return agents.Agent(**dict(dict(name="Teller", instructions="You tell stories.", model_settings=SETTINGS,
                                    model=kind(model=MODEL, openai_client=client)), **fields))


def run(one, said="Tell one."):
    return asyncio.run(agents.Runner.run(one, said, max_turns=1))


@check
def text():
    expect(run(agent()).final_output)


@check
def a_conversation_goes_on():
    first = run(agent())
    expect(run(agent(), [*first.to_input_list(), {"role": "user", "content": "Go on."}]).final_output)


@check
def streams():
    async def ask():
        result = agents.Runner.run_streamed(agent(), "Tell one.", max_turns=1)
        return [event async for event in result.stream_events()], result.final_output

    events, output = asyncio.run(ask())
    expect(events and output)


@check
def typed_output():
    expect(isinstance(run(agent(output_type=Animal)).final_output, Animal))


@check
def settings_of_openai():
    settings = agents.ModelSettings(max_tokens=8, store=False, metadata={"a": "b"}, include_usage=True, parallel_tool_calls=False,
                                    verbosity="low", top_logprobs=2, truncation="auto")
    expect(run(agent(model_settings=settings)).final_output)


@check
def tools():
    run(agent(tools=[weather]))


@check
def handoffs():
    run(agent(handoffs=[agent(name="Other")]))


@check
def responses():
    ended = agents.ModelSettings(max_tokens=200, extra_body={"stop": "e"})  # the client takes no answer that was cut off
    expect(run(agent(agents.OpenAIResponsesModel, model_settings=ended)).final_output)


main()
