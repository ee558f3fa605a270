"""OpenAI's Python client."""
# /// script
# dependencies = ["openai"]
# ///
import asyncio
import typing

import openai
import pydantic

from checks import API, KEY, MESSAGES, MODEL, check, expect, main

CLIENT = openai.OpenAI(base_url=API, api_key=KEY)
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a city.", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}}}]


class Animal(pydantic.BaseModel):
    name: typing.Annotated[str, pydantic.Field(max_length=8)]
    legs: int


def chat(**fields):
    return CLIENT.chat.completions.create(**dict(dict(model=MODEL, messages=MESSAGES, max_tokens=16, seed=1), **fields))


@check
def models():
    expect(MODEL in [model.id for model in CLIENT.models.list()])
    expect(CLIENT.models.retrieve(MODEL).id == MODEL)


@check
def completion():
    answer = CLIENT.completions.create(model=MODEL, prompt="Once", max_tokens=8, n=2, logprobs=2, stop=["zzz"], suffix=None, user="me")
    expect(len(answer.choices) == 2 and answer.choices[0].text and answer.usage.completion_tokens == 16, answer)


@check
def chat_of_text():
    answer = chat(temperature=0.5, top_p=0.9, frequency_penalty=0.1, presence_penalty=0.1, logprobs=True, top_logprobs=2, n=2)
    expect(answer.choices[1].message.role == "assistant" and answer.choices[0].message.content, answer)
    expect(len(answer.choices[0].logprobs.content) == 16, answer)


@check
def chat_with_the_hints_of_openai():
    answer = chat(user="me", metadata={"a": "b"}, store=True, service_tier="auto", safety_identifier="x", prompt_cache_key="k",
                  prompt_cache_retention="24h", verbosity="low", parallel_tool_calls=False)
    expect(answer.choices[0].message.content, answer)


@check
def reasoning_effort():
    expect(chat(reasoning_effort="low").choices[0].message.content)


@check
def an_answer_is_a_message_of_the_next_request():
    answer = chat().choices[0].message
    messages = [*MESSAGES, answer.model_dump(), {"role": "user", "content": [{"type": "text", "text": "Go on."}], "name": "Ann"}]
    expect(chat(messages=messages).choices[0].message.content)
    expect(chat(messages=[*MESSAGES, answer, MESSAGES[0]]).choices[0].message.content)


@check
def streams():
    chunks = list(chat(stream=True, stream_options={"include_usage": True, "include_obfuscation": False}))
    expect("".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == chat().choices[0].message.content)
    expect(chunks[-1].usage.completion_tokens == 16, chunks[-1])
    texts = [c.choices[0].text for c in CLIENT.completions.create(model=MODEL, prompt="Once", max_tokens=8, stream=True)]
    expect("".join(texts))


@check
def stream_helper():
    with CLIENT.chat.completions.stream(model=MODEL, messages=MESSAGES, max_tokens=200, stop="e", seed=1) as stream:
        stream.until_done()
        final = stream.get_final_completion().choices[0]
    expect(final.message.content == chat(max_tokens=200, stop="e").choices[0].message.content, final)


@check
def asynchronous():
    async def ask():
        async with openai.AsyncOpenAI(base_url=API, api_key=KEY) as client:
            async with client.chat.completions.stream(model=MODEL, messages=MESSAGES, max_tokens=200, stop="e") as stream:
                await stream.until_done()
            fields = dict(model=MODEL, messages=MESSAGES, max_tokens=8, seed=3)
            return await asyncio.gather(*(client.chat.completions.create(**fields) for _ in range(8)))

    expect(len({answer.choices[0].message.content for answer in asyncio.run(ask())}) == 1)


@check
def raw_and_streamed_responses():
    raw = CLIENT.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES, max_tokens=4)
    expect(raw.headers["x-request-id"] and raw.parse().choices[0].message.content, raw)
    with CLIENT.completions.with_streaming_response.create(model=MODEL, prompt="Once", max_tokens=4) as response:
        expect(response.headers["content-type"].startswith("application/json") and b"text_completion" in response.read())


@check
def beams_by_extra_body():
    answer = chat(n=3, extra_body={"use_beam_search": True, "beam_width": 4})
    expect(len(answer.choices) == 3 and answer.choices[0].score >= answer.choices[1].score, answer)


@check
def parsed_answers():
    answer = CLIENT.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Animal, max_tokens=200)
    expect(isinstance(answer.choices[0].message.parsed, Animal), answer)
    expect(chat(response_format={"type": "json_object"}).choices[0].message.content.startswith("{"))


@check
def errors():
    for error, fields in ((openai.NotFoundError, dict(model="other")), (openai.BadRequestError, dict(temperature=9))):
        try:
            chat(**fields)
        except error as refused:
            expect(refused.code and refused.param in fields and refused.request_id, refused)
        else:
            raise AssertionError(f"{fields} is accepted")


@check
def tools():
    answer = chat(tools=TOOLS, tool_choice="required", max_tokens=64)
    expect(answer.choices[0].message.tool_calls[0].function.name == "weather", answer)


@check
def tools_that_need_not_be_called():
    expect(chat(tools=TOOLS, tool_choice="auto").choices)


main()
