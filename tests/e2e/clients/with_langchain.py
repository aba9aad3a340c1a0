"""langchain-openai: chat, stream, tools, bound answers and responses, as `ChatOpenAI` does them."""

from typing import Any

import served
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel

V1 = f"{served.URL}/v1"


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def get_weather(city: str) -> str:
    """Get the current weather of a city."""
    return served.SAID_BY_TOOL if city == "Paris" else "unknown"


def chat_model(model: str = served.TOOL_MODEL, **fields: Any) -> ChatOpenAI:
    options = {"temperature": 0, "max_tokens": 96, "max_retries": 0, **fields}
    return ChatOpenAI(model=model, base_url=V1, api_key=served.KEY, **options)


def streamed(model: Any, given: Any) -> AIMessageChunk:
    first, *others = model.stream(given)
    return sum(others, first)


def whole_and_streamed_chats_say_the_same() -> None:
    for model in served.MODELS:
        asked = chat_model(model, max_tokens=24, stream_usage=True)
        whole, parts = asked.invoke(served.GREETING), streamed(asked, served.GREETING)
        assert whole.content.strip()
        assert parts.content == whole.content
        assert parts.usage_metadata["total_tokens"] == whole.usage_metadata["total_tokens"]


async def many_are_asked_at_once() -> None:
    asked = chat_model(served.CHAT_MODEL, max_tokens=16)
    alone = asked.invoke(served.GREETING).content
    assert [told.content for told in await asked.abatch([served.GREETING] * 4)] == [alone] * 4


def text_completions_are_read() -> None:
    asked = OpenAI(model=served.TOOL_MODEL, base_url=V1, api_key=served.KEY, temperature=0, max_tokens=8)
    assert "a + b" in asked.invoke("def add(a, b):\n    return")
    assert "a + b" in "".join(asked.stream("def add(a, b):\n    return"))


def tools_are_called_and_their_results_read() -> None:
    asked = chat_model().bind_tools([get_weather])
    for way in (asked.invoke, lambda given: streamed(asked, given)):
        called = way(served.WEATHER_QUESTION)
        (call,) = called.tool_calls
        assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})
        result = get_weather.invoke(call)
        assert isinstance(result, ToolMessage)
        turns = [HumanMessage(served.WEATHER_QUESTION), called, result]
        assert "19" in chat_model(max_tokens=32).invoke(turns).content


def a_tool_is_called_where_it_must_be() -> None:
    for choice in ("any", "get_weather"):
        asked = chat_model().bind_tools([get_weather], tool_choice=choice, parallel_tool_calls=False)
        assert asked.invoke("Say hello.").tool_calls[0]["name"] == "get_weather"


def an_answer_has_the_shape_of_a_class() -> None:
    for method in ("json_schema", "function_calling", "json_mode"):
        question = served.PERSON_QUESTION + " Answer in JSON with the keys name and age, a number."
        told = chat_model().with_structured_output(Person, method=method).invoke(question)
        assert isinstance(told, Person), method
    parts = list(chat_model().with_structured_output(Person).stream(served.PERSON_QUESTION))
    assert parts[-1].age == 36


def responses_are_asked_through_it() -> None:
    asked = chat_model(served.TOOL_MODEL, use_responses_api=True, output_version="responses/v1", max_tokens=96)
    whole, parts = asked.invoke(served.GREETING), streamed(asked, served.GREETING)
    assert whole.text.strip()
    assert parts.text == whole.text
    with_tool = asked.bind_tools([get_weather])
    called = with_tool.invoke(served.WEATHER_QUESTION)
    assert called.tool_calls[0]["args"] == {"city": "Paris"}
    assert streamed(with_tool, served.WEATHER_QUESTION).tool_calls[0]["args"] == {"city": "Paris"}
    turns = [HumanMessage(served.WEATHER_QUESTION), called, get_weather.invoke(called.tool_calls[0])]
    assert "19" in asked.invoke(turns).text
    assert asked.with_structured_output(Person).invoke(served.PERSON_QUESTION).age == 36


if __name__ == "__main__":
    served.run(
        whole_and_streamed_chats_say_the_same,
        many_are_asked_at_once,
        text_completions_are_read,
        tools_are_called_and_their_results_read,
        a_tool_is_called_where_it_must_be,
        an_answer_has_the_shape_of_a_class,
        responses_are_asked_through_it,
    )
