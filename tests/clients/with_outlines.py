"""Outlines: its mode for servers of vLLM and that for OpenAI."""
# /// script
# dependencies = ["outlines", "openai"]
# ///
import typing

import openai
import outlines
import pydantic

from checks import API, KEY, MODEL, check, expect, main


class Animal(pydantic.BaseModel):
    name: typing.Annotated[str, pydantic.Field(max_length=8)]
    legs: int


CLIENT = openai.OpenAI(base_url=API, api_key=KEY)
VLLM = outlines.from_vllm(CLIENT, MODEL)
OPENAI = outlines.from_openai(CLIENT, MODEL)
SGLANG = outlines.from_sglang(CLIENT, MODEL)


@check
def text():
    for model in (VLLM, OPENAI, SGLANG):
        expect(model("Tell a story.", max_tokens=8))


@check
def streams():
    expect("".join(VLLM.stream("Tell a story.", max_tokens=8)))


@check
def json_schemas():
    for model in (VLLM, OPENAI, SGLANG):
        Animal.model_validate_json(model("One animal.", Animal, max_tokens=200))


@check
def regular_expressions():
    for model in (VLLM, SGLANG):
        expect(len(model("A date.", outlines.types.Regex("[0-9]{4}-[0-9]{2}"), max_tokens=20)) == 7)


@check
def choices():
    expect(VLLM("Yes or no?", typing.Literal["yes", "no"], max_tokens=20) in ("yes", "no"))


@check
def integers():
    int(VLLM("A number.", int, max_tokens=200, extra_body={"repetition_penalty": 1.2}))


@check
def grammars():
    """Outlines passes the text of a grammar as it is."""
    expect(VLLM("Yes or no?", outlines.types.CFG('root ::= "yes" | "no"'), max_tokens=20) in ("yes", "no"))


@check
def several_answers():
    expect(len(VLLM("Tell a story.", n=3, max_tokens=8)) == 3)


main()
