"""Anthropic's Python client."""
# /// script
# dependencies = ["anthropic"]
# ///
import asyncio
import json
import pathlib

import anthropic
import pydantic
from anthropic.types import Message, RawMessageStreamEvent

from checks import KEY, MESSAGES, MODEL, URL, check, expect, main

CLIENT = anthropic.Anthropic(base_url=URL, api_key=KEY)
TOOLS = [{"name": "weather", "description": "The weather of a city.", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"]}}]
SAMPLES = pathlib.Path(__file__).resolve().parents[1] / "coordinator/request/answer_forms.jsonl"


def fields(**more):
    return dict(dict(model=MODEL, messages=MESSAGES, max_tokens=16, extra_body={"seed": 1}), **more)


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


@check
def message():
    sampling = {"seed": 1, "temperature": 0.5, "top_p": 0.9, "top_k": 20}
    answer = CLIENT.messages.create(**fields(system="Be brief.", metadata={"user_id": "u"}, extra_body=sampling))
    expect(answer.stop_reason == "max_tokens" and text_of(answer) and answer.usage.output_tokens == 16, answer)
    expect(answer.role == "assistant" and answer.model == MODEL and answer.seed == 1, answer)


@check
def blocks():
    messages = [{"role": "user", "content": [{"type": "text", "text": "Tell", "cache_control": {"type": "ephemeral"}},
                                             {"type": "text", "text": "a story."}]}]
    expect(text_of(CLIENT.messages.create(**fields(messages=messages, system=[{"type": "text", "text": "Be brief."}]))))


@check
def stop_sequences():
    answer = CLIENT.messages.create(**fields(stop_sequences=["e"], max_tokens=200))
    expect(answer.stop_reason == "stop_sequence" and answer.stop_sequence == "e" and "e" not in text_of(answer), answer)


@check
def an_answer_is_a_message_of_the_next_request():
    answer = CLIENT.messages.create(**fields())
    messages = [*MESSAGES, {"role": "assistant", "content": answer.content}, {"role": "user", "content": "Go on."}]
    expect(text_of(CLIENT.messages.create(**fields(messages=messages))))


@check
def the_beginning_of_an_answer_is_continued():
    messages = [*MESSAGES, {"role": "assistant", "content": "Once upon"}]
    expect(text_of(CLIENT.messages.create(**fields(messages=messages))))


@check
def stream():
    whole = CLIENT.messages.create(**fields())
    with CLIENT.messages.stream(**fields()) as events:
        text = "".join(events.text_stream)
        final = events.get_final_message()
    expect(text == text_of(whole) == text_of(final), (text, whole))
    expect(final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens, final)
    kinds = [event.type for event in CLIENT.messages.create(**fields(stream=True))]
    expect(kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds)


@check
def asynchronous():
    async def ask():
        async with anthropic.AsyncAnthropic(base_url=URL, api_key=KEY) as client:
            async with client.messages.stream(**fields()) as events:
                await events.get_final_message()
            return await asyncio.gather(*(client.messages.create(**fields()) for _ in range(8)))

    expect(len({text_of(answer) for answer in asyncio.run(ask())}) == 1)


@check
def beams():
    answer = CLIENT.messages.create(**fields(extra_body={"use_beam_search": True, "beam_width": 4}))
    expect(text_of(answer) and answer.beam_mass >= 0 and answer.usage.speculation["method"], answer)


@check
def count_tokens():
    counted = CLIENT.messages.count_tokens(model=MODEL, messages=MESSAGES, system="Be brief.")
    usage = CLIENT.messages.create(**fields(system="Be brief.")).usage
    expect(counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens, (counted, usage))


@check
def a_typed_answer():
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "legs": {"type": "integer"}},
              "required": ["name", "legs"], "additionalProperties": False}
    answer = CLIENT.messages.create(**fields(output_config={"format": {"type": "json_schema", "schema": schema}}, max_tokens=200))
    expect(list(json.loads(text_of(answer))) == ["name", "legs"], answer)


@check
def errors():
    for error, kind, more in ((anthropic.NotFoundError, "not_found_error", dict(model="claude-other")),
                              (anthropic.BadRequestError, "invalid_request_error", dict(extra_body={"temperature": 9}))):
        try:
            CLIENT.messages.create(**fields(**more))
        except error as refused:
            expect(refused.body["type"] == "error" and refused.body["error"]["type"] == kind, refused.body)
            expect(refused.request_id or refused.response.headers["x-request-id"], refused)
        else:
            raise AssertionError(f"{more} is accepted")


@check
def images_are_refused_by_name():
    image = {"type": "image", "source": {"type": "url", "url": "http://example.com/x.png"}}
    try:
        CLIENT.messages.create(**fields(messages=[{"role": "user", "content": [image]}]))
    except anthropic.BadRequestError as refused:
        expect(refused.body["error"]["param"] == "messages[0].content[0].type", refused.body)
    else:
        raise AssertionError("an image is accepted")


@check
def tools():
    asks = fields(tools=TOOLS, tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=200)
    answer = CLIENT.messages.create(**asks)
    call = answer.content[-1]
    expect(answer.stop_reason == "tool_use" and call.name == "weather" and list(call.input) == ["city"], answer)
    with CLIENT.messages.stream(**asks) as events:
        expect(events.get_final_message().content[-1].input == call.input)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Rain."}]}
    messages = [*MESSAGES, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    expect(CLIENT.messages.create(**fields(messages=messages, tools=TOOLS)).stop_reason)


@check
def samples_of_answers_have_its_types():
    event_type = pydantic.TypeAdapter(RawMessageStreamEvent)
    lines = [json.loads(line) for line in SAMPLES.read_text(encoding="utf8").splitlines()]
    samples = [line for line in lines if line["form"] == "message"]
    expect(len(samples) >= 9)
    for sample in samples:
        Message.model_validate(sample["whole"], strict=True)
        for event in sample["events"]:
            if event["type"] != "ping":
                event_type.validate_python(event, strict=True)


main()
