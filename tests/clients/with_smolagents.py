"""smolagents."""
# /// script
# dependencies = ["smolagents[openai]"]
# ///
import smolagents

from checks import API, KEY, MODEL, check, expect, main

MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "Tell a story."}]}]


def model(**fields):
    return smolagents.OpenAIModel(MODEL, api_base=API, api_key=KEY, **dict(dict(max_tokens=64, temperature=0.7), **fields))


@smolagents.tool
def weather(city: str) -> str:
    """The weather.

    Args:
        city: The city.
    """
    return city


@check
def generate():
    expect(model().generate(MESSAGES).content)


@check
def streams():
    expect("".join(part.content or "" for part in model().generate_stream(MESSAGES)))


@check
def an_agent_that_writes_code():
    """Its steps are served; what a model of stories writes is no code."""
    agent = smolagents.CodeAgent(tools=[], model=model(), max_steps=1, verbosity_level=0)
    agent.run("What is 2 + 3?")
    expect(not any("BadRequest" in str(getattr(step, "error", "")) for step in agent.memory.steps), agent.memory.steps[-1])


@check
def an_agent_that_writes_code_in_json():
    agent = smolagents.CodeAgent(tools=[], model=model(), max_steps=1, verbosity_level=0, use_structured_outputs_internally=True)
    agent.run("What is 2 + 3?")


@check
def an_agent_that_calls_tools():
    agent = smolagents.ToolCallingAgent(tools=[weather], model=model(), max_steps=1, verbosity_level=0)
    agent.run("What is the weather?")
    expect(not any("BadRequest" in str(getattr(step, "error", "")) for step in agent.memory.steps), agent.memory.steps[-1])


main()
