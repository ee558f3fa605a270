"""LangChain's OpenAI integration."""
# /// script
# dependencies = ["langchain-openai"]
# ///
import asyncio
import typing

import langchain_openai
import pydantic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from checks import API, KEY, MODEL, check, expect, main

MESSAGES = [SystemMessage("You tell stories."), HumanMessage("Tell one.")]


class Animal(pydantic.BaseModel):
    """An animal."""
    name: typing.Annotated[str, pydantic.Field(max_length=8)]
    legs: int


def weather(city: str) -> str:
    """The weather of a city."""
    return city


def chat(**fields):
    return langchain_openai.ChatOpenAI(**dict(dict(base_url=API, api_key=KEY, model=MODEL, max_tokens=16, seed=1), **fields))


@check
def invoke():
    answer = chat(temperature=0.5, top_p=0.9, n=1, logprobs=True, top_logprobs=2).invoke(MESSAGES)
    expect(answer.content and answer.usage_metadata["output_tokens"] == 16, answer)


@check
def penalties_and_stop():
    expect(chat(frequency_penalty=0.1, presence_penalty=0.1, stop=["zzz"], logit_bias={7: 1}).invoke("Once").content)


@check
def an_answer_goes_on():
    model = chat()
    answer = model.invoke(MESSAGES)
    expect(isinstance(answer, AIMessage) and model.invoke([*MESSAGES, answer, HumanMessage("Go on.")]).content)


@check
def streams():
    chunks = list(chat(stream_usage=True).stream(MESSAGES))
    expect("".join(chunk.content for chunk in chunks) == chat().invoke(MESSAGES).content, chunks)
    expect(any(chunk.usage_metadata for chunk in chunks), "no usage")


@check
def batches():
    answers = asyncio.run(chat().abatch([MESSAGES] * 4))
    expect(len({answer.content for answer in answers}) == 1)


@check
def beams():
    expect(chat(n=2, extra_body={"use_beam_search": True, "beam_width": 4}).generate([MESSAGES]).generations[0][1].text)


@check
def structured_by_schema():
    answer = chat(max_tokens=200).with_structured_output(Animal, method="json_schema").invoke(MESSAGES)
    expect(isinstance(answer, Animal), answer)


@check
def completions():
    model = langchain_openai.OpenAI(base_url=API, api_key=KEY, model=MODEL, max_tokens=8)
    expect(model.invoke("Once"))
    expect("".join(model.stream("Once")))
    expect(len(model.generate(["Once", "Then"]).generations) == 2)


@check
def reasoning_effort():
    expect(chat(reasoning_effort="low").invoke(MESSAGES).content)


@check
def bound_tools():
    expect(chat(max_tokens=600).bind_tools([weather], tool_choice="required").invoke(MESSAGES).tool_calls)


@check
def structured_by_a_function():
    expect(isinstance(chat(max_tokens=200).with_structured_output(Animal, method="function_calling").invoke(MESSAGES), Animal))


@check
def responses():
    expect(chat(use_responses_api=True, seed=None).invoke(MESSAGES).content)


main()
