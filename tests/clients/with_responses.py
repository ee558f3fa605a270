"""OpenAI's Python client, its Responses API."""
# /// script
# dependencies = ["openai"]
# ///
import asyncio
import json
import pathlib

import openai
import pydantic
from openai.types.responses import Response, ResponseStreamEvent

from checks import API, KEY, MODEL, check, expect, main

CLIENT = openai.OpenAI(base_url=API, api_key=KEY)
TOOLS = [{"type": "function", "name": "weather", "description": "The weather of a city.", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"], "additionalProperties": False}}]
SAMPLES = pathlib.Path(__file__).resolve().parents[1] / "coordinator/request/answer_forms.jsonl"


class Animal(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    legs: int


def fields(**more):
    return dict(dict(model=MODEL, input="Tell a story.", max_output_tokens=16, extra_body={"seed": 1}), **more)


@check
def response():
    answer = CLIENT.responses.create(**fields(instructions="Be brief.", temperature=0.5, top_p=0.9))
    expect(answer.output_text and answer.usage.output_tokens == 16, answer)
    expect(answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens", answer)
    expect(answer.instructions == "Be brief." and answer.temperature == 0.5 and answer.seed == 1, answer)


@check
def the_hints_of_openai():
    answer = CLIENT.responses.create(**fields(
        user="me", metadata={"a": "b"}, store=False, service_tier="auto", safety_identifier="x", prompt_cache_key="k", truncation="auto",
        include=["reasoning.encrypted_content"], reasoning={"effort": "low", "summary": "auto"}, text={"verbosity": "low"},
        parallel_tool_calls=False))
    expect(answer.output_text and answer.metadata == {"a": "b"}, answer)


@check
def an_answer_is_input_of_the_next_request():
    first = CLIENT.responses.create(**fields())
    items = [{"role": "user", "content": "Tell a story."}, *first.output, {"role": "user", "content": "Go on."}]
    expect(CLIENT.responses.create(**fields(input=items)).output_text)
    items = [{"role": "user", "content": [{"type": "input_text", "text": "Tell a story."}]},
             *[item.model_dump() for item in first.output], {"role": "user", "content": "Go on."}]
    expect(CLIENT.responses.create(**fields(input=items)).output_text)


@check
def stream():
    whole = CLIENT.responses.create(**fields())
    events = list(CLIENT.responses.create(**fields(stream=True)))
    expect("".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text, events)
    expect([e.sequence_number for e in events] == list(range(len(events))), events)
    expect(events[-1].type == "response.incomplete" and events[-1].response.output_text == whole.output_text, events[-1])


@check
def stream_helper():
    with CLIENT.responses.stream(**fields(max_output_tokens=200, extra_body={"seed": 1, "stop": "e"})) as stream:
        stream.until_done()
        final = stream.get_final_response()
    whole = CLIENT.responses.create(**fields(max_output_tokens=200, extra_body={"seed": 1, "stop": "e"}))
    expect(final.output_text == whole.output_text and final.status == "completed", final)


@check
def asynchronous():
    async def ask():
        async with openai.AsyncOpenAI(base_url=API, api_key=KEY) as client:
            return await asyncio.gather(*(client.responses.create(**fields()) for _ in range(8)))

    expect(len({answer.output_text for answer in asyncio.run(ask())}) == 1)


@check
def parsed_answers():
    answer = CLIENT.responses.parse(**fields(text_format=Animal, max_output_tokens=200))
    expect(isinstance(answer.output_parsed, Animal), answer)


@check
def logprobs():
    answer = CLIENT.responses.create(**fields(include=["message.output_text.logprobs"], top_logprobs=2))
    scores = answer.output[0].content[0].logprobs
    expect(len(scores) == 16 and len(scores[0].top_logprobs) == 2, answer)
    events = list(CLIENT.responses.create(**fields(include=["message.output_text.logprobs"], top_logprobs=2, stream=True)))
    expect(sum(len(e.logprobs) for e in events if e.type == "response.output_text.delta") == 16, events)


@check
def beams():
    answer = CLIENT.responses.create(**fields(extra_body={"use_beam_search": True, "beam_width": 4}))
    expect(answer.output_text and answer.usage.speculation["method"] and answer.score is not None, answer)


@check
def errors():
    for error, param, more in ((openai.NotFoundError, "model", dict(model="gpt-5")), (openai.BadRequestError, "temperature", dict(temperature=9)),
                               (openai.BadRequestError, "previous_response_id", dict(previous_response_id="resp_1")),
                               (openai.BadRequestError, "tools[0].type", dict(tools=[{"type": "web_search"}])),
                               (openai.BadRequestError, "max_output_tokens", dict(max_output_tokens=10**6))):
        try:
            CLIENT.responses.create(**fields(**more))
        except error as refused:
            expect(refused.code and refused.param == param and refused.request_id, refused)
        else:
            raise AssertionError(f"{more} is accepted")


@check
def tools():
    asks = fields(tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_output_tokens=200)
    answer = CLIENT.responses.create(**asks)
    call = answer.output[-1]
    expect(call.type == "function_call" and call.name == "weather" and list(json.loads(call.arguments)) == ["city"], answer)
    with CLIENT.responses.stream(**asks) as stream:
        expect(stream.get_final_response().output[-1].arguments == call.arguments)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}
    items = [{"role": "user", "content": "Tell a story."}, *answer.output, result]
    expect(CLIENT.responses.create(**fields(input=items, tools=TOOLS)).status)


@check
def samples_of_answers_have_its_types():
    event_type = pydantic.TypeAdapter(ResponseStreamEvent)
    lines = [json.loads(line) for line in SAMPLES.read_text(encoding="utf8").splitlines()]
    samples = [line for line in lines if line["form"] == "response"]
    expect(len(samples) >= 9)
    for sample in samples:
        Response.model_validate(dict(sample["whole"], created_at=float(sample["whole"]["created_at"])), strict=True)
        for event in sample["events"]:
            event_type.validate_python(event)


main()
