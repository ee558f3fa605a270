"""instructor: answers as Pydantic models."""
# /// script
# dependencies = ["instructor", "openai"]
# ///
import typing

import instructor
import openai
import pydantic

from checks import API, KEY, MESSAGES, MODEL, check, expect, main


class Animal(pydantic.BaseModel):
    name: typing.Annotated[str, pydantic.Field(max_length=8)]
    legs: int


def ask(mode, how="create", **fields):
    client = instructor.from_openai(openai.OpenAI(base_url=API, api_key=KEY), mode=mode)
    return getattr(client.chat.completions, how)(**dict(
        dict(model=MODEL, messages=MESSAGES, response_model=Animal, max_tokens=200, max_retries=0), **fields))


@check
def json_schema():
    expect(isinstance(ask(instructor.Mode.JSON_SCHEMA), Animal))


@check
def json_schema_with_the_completion():
    animal, completion = ask(instructor.Mode.JSON_SCHEMA, "create_with_completion")
    expect(isinstance(animal, Animal) and completion.usage.completion_tokens)


@check
def partial_answers():
    parts = list(ask(instructor.Mode.JSON_SCHEMA, "create_partial"))
    expect(parts and parts[-1].legs is not None, parts)


@check
def json_with_the_format_of_vllm():
    format_ = {"structured_outputs": {"json": Animal.model_json_schema()}}
    expect(isinstance(ask(instructor.Mode.MD_JSON, extra_body=format_), Animal))


@check
def json_object_is_json():
    """The format is any object, so a model that does not follow the prompt may leave out the keys."""
    try:
        ask(instructor.Mode.JSON)
    except Exception as error:
        expect("validation error" in str(error) or "max_tokens" in str(error) or "incomplete" in str(error).lower(), error)


@check
def tools():
    expect(isinstance(ask(instructor.Mode.TOOLS, max_tokens=1000), Animal))


@check
def responses():
    client = instructor.from_openai(openai.OpenAI(base_url=API, api_key=KEY), mode=instructor.Mode.RESPONSES_TOOLS)
    expect(client.responses.create(model=MODEL, input=MESSAGES, response_model=Animal, max_retries=0))


main()
