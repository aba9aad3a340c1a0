"""llama-index's OpenAILike: completions, which are its default, chat, stream, tools and bound answers."""

from typing import Any

import served
from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

CODE = "def add(a, b):\n    return"
CONTEXT = 8192


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def get_weather(city: str) -> str:
    """Get the current weather of a city."""
    return served.SAID_BY_TOOL if city == "Paris" else "unknown"


TOOL = FunctionTool.from_defaults(get_weather)


def asked(model: str = served.TOOL_MODEL, **fields: Any) -> OpenAILike:
    options = {"temperature": 0, "max_tokens": 96, "max_retries": 0, "context_window": CONTEXT, **fields}
    return OpenAILike(model=model, api_base=f"{served.URL}/v1", api_key=served.KEY, **options)


def chat_model(model: str = served.TOOL_MODEL, **fields: Any) -> OpenAILike:
    return asked(model, is_chat_model=True, is_function_calling_model=True, **fields)


def by_default_it_completes_text() -> None:
    model = asked(max_tokens=8)
    assert "a + b" in model.complete(CODE).text
    assert list(model.stream_complete(CODE))[-1].text == model.complete(CODE).text


def whole_and_streamed_chats_say_the_same() -> None:
    for name in served.MODELS:
        model, turns = chat_model(name, max_tokens=24), [ChatMessage(content=served.GREETING)]
        whole = model.chat(turns).message.content
        assert whole.strip()
        assert list(model.stream_chat(turns))[-1].message.content == whole


async def it_asks_without_blocking() -> None:
    model, turns = chat_model(served.CHAT_MODEL, max_tokens=24), [ChatMessage(content=served.GREETING)]
    whole = (await model.achat(turns)).message.content
    parts = [part async for part in await model.astream_chat(turns)]
    assert parts[-1].message.content == whole


def tools_are_called_and_their_results_read() -> None:
    model = chat_model()
    whole = model.chat_with_tools([TOOL], served.WEATHER_QUESTION)
    parts = list(model.stream_chat_with_tools([TOOL], served.WEATHER_QUESTION))[-1]
    for reply in (whole, parts):
        (call,) = model.get_tool_calls_from_response(reply)
        assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "Paris"})
    result = ChatMessage(
        role=MessageRole.TOOL, content=served.SAID_BY_TOOL, additional_kwargs={"tool_call_id": call.tool_id}
    )
    turns = [ChatMessage(content=served.WEATHER_QUESTION), whole.message, result]
    assert "19" in chat_model(max_tokens=32).chat(turns).message.content


def a_tool_is_called_where_it_must_be() -> None:
    model = chat_model()
    for fields in ({"tool_required": True}, {"tool_choice": "get_weather"}):
        reply = model.chat_with_tools([TOOL], "Say hello.", allow_parallel_tool_calls=False, **fields)
        assert model.get_tool_calls_from_response(reply)[0].tool_name == "get_weather"


def an_answer_has_the_shape_of_a_class() -> None:
    for fields in ({}, {"should_use_structured_outputs": True}):
        model = chat_model(**fields).as_structured_llm(Person)
        assert model.complete(served.PERSON_QUESTION).raw.age == 36


if __name__ == "__main__":
    served.run(
        by_default_it_completes_text,
        whole_and_streamed_chats_say_the_same,
        it_asks_without_blocking,
        tools_are_called_and_their_results_read,
        a_tool_is_called_where_it_must_be,
        an_answer_has_the_shape_of_a_class,
    )
