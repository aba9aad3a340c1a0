"""instructor: its modes of asking for an answer of a class's shape, whole, streamed and many at once."""

from typing import Any, Literal

import instructor
import openai
import served
from pydantic import BaseModel, Field

QUESTION = [{"role": "user", "content": served.PERSON_QUESTION}]
MODES = (
    instructor.Mode.TOOLS,
    instructor.Mode.TOOLS_STRICT,
    instructor.Mode.JSON,
    instructor.Mode.JSON_SCHEMA,
    instructor.Mode.MD_JSON,
)


class Person(BaseModel):
    name: str = Field(description="The whole name.", max_length=40)
    age: int = Field(ge=0, le=150)


class Team(BaseModel):
    kind: Literal["sport", "work"]
    members: list[Person] = Field(min_length=2, max_length=2)


def client(**fields: Any) -> instructor.Instructor:
    bare = openai.OpenAI(base_url=f"{served.URL}/v1", api_key=served.KEY, max_retries=0)
    return instructor.from_openai(bare, **fields)


def ask(asked: Any, shape: Any, **fields: Any) -> Any:
    options = {"temperature": 0, "max_tokens": 160, "max_retries": 0, "messages": QUESTION, **fields}
    return asked.create(model=served.TOOL_MODEL, response_model=shape, **options)


def its_default_mode_is_answered() -> None:
    assert ask(client(), Person).age == 36
    provided = instructor.from_provider(f"openai/{served.TOOL_MODEL}", base_url=f"{served.URL}/v1", api_key=served.KEY)
    told = provided.create(response_model=Person, messages=QUESTION, temperature=0, max_tokens=160, max_retries=0)
    assert told.age == 36


def every_mode_is_answered() -> None:
    for mode in MODES:
        assert ask(client(mode=mode), Person).age == 36, mode


def nested_shapes_hold() -> None:
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        told = ask(client(mode=mode), Team, messages=[{"role": "user", "content": "Invent a team of two."}])
        assert len(told.members) == 2


def parts_come_as_they_are_written() -> None:
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        parts = list(
            client(mode=mode).create_partial(
                model=served.TOOL_MODEL, response_model=Person, messages=QUESTION, temperature=0, max_tokens=160
            )
        )
        assert len(parts) > 2
        assert parts[-1].age == 36


def responses_are_asked_through_it() -> None:
    told = ask(client(mode=instructor.Mode.RESPONSES_TOOLS), Person, max_tokens=160)
    assert told.age == 36


if __name__ == "__main__":
    served.run(
        its_default_mode_is_answered,
        every_mode_is_answered,
        nested_shapes_hold,
        parts_come_as_they_are_written,
        responses_are_asked_through_it,
    )
