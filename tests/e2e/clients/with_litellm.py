"""litellm: chat, stream, tools and a bound answer, by its route for servers of OpenAI's kind."""

import json
from typing import Any

import litellm
import served
from pydantic import BaseModel

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": served.WEATHER_DESCRIPTION,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class Person(BaseModel):
    name: str
    age: int


def ask(question: str, *, model: str = served.TOOL_MODEL, route: str = "openai", **fields: Any) -> Any:
    options = {"temperature": 0, "max_tokens": 96, "api_base": f"{served.URL}/v1", "api_key": served.KEY, **fields}
    messages = [{"role": "user", "content": question}]
    return litellm.completion(model=f"{route}/{model}", messages=messages, **options)


def stream(question: str, **fields: Any) -> Any:
    chunks = list(ask(question, stream=True, stream_options={"include_usage": True}, **fields))
    return litellm.stream_chunk_builder(chunks)


def whole_and_streamed_chats_say_the_same() -> None:
    for model in served.MODELS:
        for route in ("openai", "hosted_vllm"):
            whole = ask(served.GREETING, model=model, route=route, max_tokens=24)
            streamed = stream(served.GREETING, model=model, route=route, max_tokens=24)
            assert whole.choices[0].message.content.strip()
            assert streamed.choices[0].message.content == whole.choices[0].message.content
            assert streamed.usage.total_tokens == whole.usage.total_tokens
            assert streamed.choices[0].finish_reason == whole.choices[0].finish_reason


def text_completions_are_read() -> None:
    for is_stream in (False, True):
        reply = litellm.text_completion(
            model=f"text-completion-openai/{served.TOOL_MODEL}",
            prompt="def add(a, b):\n    return",
            max_tokens=8,
            temperature=0,
            stream=is_stream,
            api_base=f"{served.URL}/v1",
            api_key=served.KEY,
        )
        parts = reply if is_stream else [reply]
        assert "a + b" in "".join(part.choices[0].text or "" for part in parts)


def tools_are_called_and_their_results_read() -> None:
    for way in (ask, stream):
        choice = way(served.WEATHER_QUESTION, tools=[TOOL]).choices[0]
        (call,) = choice.message.tool_calls
        assert choice.finish_reason == "tool_calls"
        assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})
        turns = [
            {"role": "user", "content": served.WEATHER_QUESTION},
            choice.message,
            {"role": "tool", "tool_call_id": call.id, "name": "get_weather", "content": served.SAID_BY_TOOL},
        ]
        told = litellm.completion(
            model=f"openai/{served.TOOL_MODEL}",
            messages=turns,
            temperature=0,
            max_tokens=32,
            api_base=f"{served.URL}/v1",
            api_key=served.KEY,
        )
        assert "19" in told.choices[0].message.content


def a_tool_is_called_where_it_must_be() -> None:
    forced = {"type": "function", "function": {"name": "get_weather"}}
    for choice in ("required", forced):
        told = ask("Say hello.", tools=[TOOL], tool_choice=choice, parallel_tool_calls=False).choices[0]
        assert told.message.tool_calls[0].function.name == "get_weather"


def an_answer_has_the_shape_of_a_class() -> None:
    for way in (ask, stream):
        told = way(served.PERSON_QUESTION, response_format=Person).choices[0].message.content
        assert Person.model_validate_json(told).age == 36


def messages_and_responses_are_asked_through_it() -> None:
    message = litellm.completion(
        model=f"anthropic/{served.TOOL_MODEL}",
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": served.WEATHER_QUESTION}],
        tools=[TOOL],
        temperature=0,
        max_tokens=96,
        api_base=served.URL,
        api_key=served.KEY,
    )
    assert json.loads(message.choices[0].message.tool_calls[0].function.arguments) == {"city": "Paris"}
    response = litellm.responses(
        model=f"openai/{served.CHAT_MODEL}",
        input=served.GREETING,
        max_output_tokens=24,
        api_base=f"{served.URL}/v1",
        api_key=served.KEY,
    )
    assert response.output[0].content[0].text


def errors_are_its_own() -> None:
    unknown = served.raised(litellm.BadRequestError, lambda: ask(served.GREETING, model="absent", num_retries=0))
    assert "absent" in str(unknown)
    served.raised(litellm.AuthenticationError, lambda: ask(served.GREETING, api_key="wrong", num_retries=0))


if __name__ == "__main__":
    served.run(
        whole_and_streamed_chats_say_the_same,
        text_completions_are_read,
        tools_are_called_and_their_results_read,
        a_tool_is_called_where_it_must_be,
        an_answer_has_the_shape_of_a_class,
        messages_and_responses_are_asked_through_it,
        errors_are_its_own,
    )
