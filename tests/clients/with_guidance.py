"""Guidance: its mode for OpenAI and that for servers of vLLM."""
# /// script
# dependencies = ["guidance", "openai"]
# ///
import typing

import guidance
import pydantic
from guidance import assistant, gen, select, system, user
from guidance.models.experimental import VLLMModel

from checks import API, KEY, MODEL, check, expect, main


class Animal(pydantic.BaseModel):
    name: typing.Annotated[str, pydantic.Field(max_length=8)]
    legs: int


def ask(what, model=guidance.models.OpenAI):
    one = model(MODEL, api_key=KEY, base_url=API, echo=False)
    with system():
        one += "You tell stories."
    with user():
        one += "Tell one."
    with assistant():
        one += what
    return one["answer"]


@check
def text():
    expect(ask(gen(name="answer", max_tokens=8)))


@check
def json_schemas():
    Animal.model_validate_json(ask(guidance.json(name="answer", schema=Animal, max_tokens=200)))


@check
def grammars():
    expect(ask(select(["yes", "no"], name="answer"), VLLMModel) in ("yes", "no"))


main()
