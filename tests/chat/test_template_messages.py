"""Messages as clients send them."""

from typing import Any

import pytest

from memra.chat.template_messages import EmptyContent, MessageStyle, plain_copy, plain_messages
from memra.errors import InvalidRequestError


def _call(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]}


def _arguments(arguments: Any, *, as_text: bool = False) -> Any:
    [message] = plain_messages([_call(arguments)], style=MessageStyle(arguments_as_text=as_text))
    return message["tool_calls"][0]["function"]["arguments"]


def _plain(message: dict[str, Any], **style: Any) -> dict[str, Any]:
    [plain] = plain_messages([message], style=MessageStyle(**style))
    return plain


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ('{"a": 1, "b": "é"}', {"a": 1, "b": "é"}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ("{broken", "{broken"),
        ("[1, 2]", "[1, 2]"),
    ],
)
def test_arguments_become_an_object_where_they_are_one(sent: Any, seen: Any):
    assert _arguments(sent) == seen


@pytest.mark.parametrize(
    ("sent", "seen"),
    [('{"a":1}', '{"a":1}'), ({"a": "é"}, '{"a": "é"}'), ("", "{}"), (None, "{}"), ("{broken", "{broken")],
)
def test_arguments_become_json_text_for_a_template_that_wants_text(sent: Any, seen: str):
    assert _arguments(sent, as_text=True) == seen


def test_fields_without_value_are_left_out():
    assert _plain({"role": "user", "content": "x", "name": None}) == {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("style", "extra"),
    [(EmptyContent.ABSENT, {}), (EmptyContent.EMPTY, {"content": ""}), (EmptyContent.NULL, {"content": None})],
)
@pytest.mark.parametrize("sent", [{}, {"content": None}])
def test_an_answer_without_text_follows_the_style(style: EmptyContent, extra: dict[str, Any], sent: dict[str, Any]):
    assert _plain({"role": "assistant", **sent}, empty_content=style) == {"role": "assistant", **extra}


def test_text_parts_are_joined_by_line_breaks():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b "}]
    assert _plain({"role": "user", "content": parts})["content"] == "a\nb "


@pytest.mark.parametrize("part", [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text"}, 3])
def test_a_part_that_is_not_text_is_refused(part: Any):
    with pytest.raises(InvalidRequestError, match="text only") as refusal:
        _plain({"role": "user", "content": [part]})
    assert refusal.value.param == "messages"


@pytest.mark.parametrize("field", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_is_given_under_the_names_that_templates_read(field: str):
    plain = _plain({"role": "assistant", "content": "x", field: "because"})
    assert plain["reasoning_content"] == plain["thinking"] == "because"


def test_only_plain_values_reach_a_template():
    class Loud(str):
        __slots__ = ()

        def save(self) -> None:
            raise AssertionError

    copy = plain_copy({"a": (1, 2.5, True, None), Loud("b"): Loud("c"), "d": object()})
    assert copy == {"a": [1, 2.5, True, None], "b": "c", "d": "<object>"}
    assert {type(key) for key in copy} == {str}
    assert type(copy["b"]) is str


SYSTEM = [{"role": "system", "content": text} for text in ("a", "b")]
USER = {"role": "user", "content": "c"}


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ("u s", "u+s"),
        ("s u s", "s u+s"),
        ("u s a u", "u+s a u"),
        ("u a s u", "u a s+u"),
        ("u s s", "u+s+s"),
        ("u a t s", "u a t s!"),
        ("u a s", "u a s!"),
        ("u a u s a", "u a u+s a"),
        ("s s u u", "s s u u"),
    ],
)
def test_late_system_turns_go_into_the_users_turn_beside_them(sent: str, seen: str):
    """Turns by the letter of their role and their place; `+` joins, and `!` is a system turn that is now the user's."""
    roles = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    turns = [{"role": roles[letter], "content": f"{letter}{place}"} for place, letter in enumerate(sent.split())]
    told = plain_messages(turns, style=MessageStyle(has_no_late_system=True))
    texts = iter(turn["content"] for turn in turns)
    wanted = []
    for group in seen.split():
        letters = group.rstrip("!").split("+")
        role = "user" if group.endswith("!") or "u" in letters else roles[letters[0]]
        wanted.append({"role": role, "content": "\n\n".join(next(texts) for _ in letters)})
    assert told == wanted


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ([*SYSTEM, USER], [{"role": "system", "content": "a\n\nb"}, USER]),
        ([SYSTEM[0], {"role": "system", "content": None}, USER], [SYSTEM[0], USER]),
        ([SYSTEM[0], USER, SYSTEM[1]], [SYSTEM[0], USER, SYSTEM[1]]),
        ([USER], [USER]),
        (SYSTEM, [{"role": "system", "content": "a\n\nb"}]),
    ],
)
def test_system_turns_above_a_conversation_become_one_where_a_template_reads_one(sent: list[Any], seen: list[Any]):
    assert plain_messages(sent, style=MessageStyle(has_one_system=True)) == seen
    assert len(plain_messages(sent, style=MessageStyle())) == len(sent)
