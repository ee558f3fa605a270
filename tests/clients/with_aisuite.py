"""aisuite."""
# /// script
# dependencies = ["aisuite[openai]"]
# ///
import aisuite

from checks import API, KEY, MESSAGES, MODEL, check, expect, main

CLIENT = aisuite.Client({"openai": {"api_key": KEY, "base_url": API}})


@check
def chat():
    answer = CLIENT.chat.completions.create(model=f"openai:{MODEL}", messages=MESSAGES, max_tokens=8, temperature=0.5)
    expect(answer.choices[0].message.content)


@check
def an_answer_is_a_message_of_the_next_request():
    fields = dict(model=f"openai:{MODEL}", max_tokens=8)
    message = CLIENT.chat.completions.create(messages=MESSAGES, **fields).choices[0].message
    expect(CLIENT.chat.completions.create(messages=[*MESSAGES, message, MESSAGES[0]], **fields).choices[0].message.content)


main()
