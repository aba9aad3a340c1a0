"""pydantic-ai: agents with text, tools and typed outputs, over chat completions and over responses."""

from typing import Any

import served
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput, RunContext, ToolOutput
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import UsageLimits

SETTINGS = ModelSettings(temperature=0, max_tokens=160)
KINDS = (OpenAIChatModel, OpenAIResponsesModel)
FEW = UsageLimits(request_limit=4)


async def only_at_first(context: RunContext[None], tool: ToolDefinition) -> ToolDefinition | None:
    """Take the tool away once it was called: a small model would call it for ever."""
    return tool if context.run_step == 1 else None


class Person(BaseModel):
    name: str
    age: int


def model(name: str = served.TOOL_MODEL, kind: type[Any] = OpenAIChatModel) -> Model:
    return kind(name, provider=OpenAIProvider(base_url=f"{served.URL}/v1", api_key=served.KEY))


def agent(asked: Model, **fields: Any) -> Agent[None, Any]:
    return Agent(asked, model_settings=SETTINGS, retries=0, **fields)


async def whole_and_streamed_chats_say_the_same() -> None:
    for name in served.MODELS:
        for kind in KINDS:
            asking = agent(model(name, kind), instructions="Be brief.")
            whole = await asking.run(served.GREETING)
            async with asking.run_stream(served.GREETING) as parts:
                text = await parts.get_output()
            assert whole.output.strip()
            assert text == whole.output
            assert whole.usage.output_tokens > 0


async def tools_are_called_and_their_results_read() -> None:
    for kind in KINDS:
        asking = agent(model(kind=kind))

        @asking.tool_plain(prepare=only_at_first)
        def get_weather(city: str) -> str:
            """Get the current weather of a city."""
            return served.SAID_BY_TOOL if city == "Paris" else "unknown"

        told = await asking.run(served.WEATHER_QUESTION, usage_limits=FEW)
        assert "19" in told.output, kind
        async with asking.run_stream(served.WEATHER_QUESTION, usage_limits=FEW) as parts:
            assert await parts.get_output() == told.output, kind


async def an_output_has_the_shape_of_a_class() -> None:
    for kind in KINDS:
        for shape in (Person, ToolOutput(Person), NativeOutput(Person), PromptedOutput(Person)):
            asking = agent(model(kind=kind), output_type=shape)
            whole = await asking.run(served.PERSON_QUESTION, usage_limits=FEW)
            assert whole.output.age == 36, (kind, shape)
            async with asking.run_stream(served.PERSON_QUESTION, usage_limits=FEW) as parts:
                assert (await parts.get_output()).age == 36, (kind, shape)


async def a_conversation_goes_on() -> None:
    for kind in KINDS:
        asking = agent(model(kind=kind))
        first = await asking.run("My name is Ada. Say hello.")
        second = await asking.run("What is my name?", message_history=first.all_messages())
        assert "Ada" in second.output


if __name__ == "__main__":
    served.run(
        whole_and_streamed_chats_say_the_same,
        tools_are_called_and_their_results_read,
        an_output_has_the_shape_of_a_class,
        a_conversation_goes_on,
    )
