"""Objects and arrays that are written as elements, and values between quotes of their own."""

import re

import pytest

from memra.chat.tool_dialects.contract import TextPiece
from memra.chat.tool_dialects.invoke_tags import minimax_m3
from memra.chat.tool_dialects.minicpm import MiniCpmDialect
from tests.chat.tool_dialects.written_answers import calls_of, read, text_of

LEAD = "]<]minimax[>["
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "book",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"$ref": "#/$defs/Place"},
                    "places": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
                    "title": {"type": "string"},
                    "open": {},
                },
                "$defs": {
                    "Place": {
                        "type": "object",
                        "properties": {
                            "item": {"type": "string"},
                            "days": {"type": "array", "items": {"type": "integer"}},
                            "code": {"type": "string"},
                        },
                    }
                },
            },
        },
    }
]


def write(arguments: str) -> str:
    """A call whose parameters are given with `[` and `]` for the marks of tags."""
    body = re.sub(r"[\[\]]", lambda mark: f"{LEAD}<" if mark[0] == "[" else ">", arguments)
    return f'{LEAD}<tool_call>\n{LEAD}<invoke name="book">{body}{LEAD}</invoke>\n{LEAD}</tool_call>'


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("[title]12[/title]", {"title": "12"}),
        ("[title][/title]", {"title": ""}),
        ("[place][code]12[/code][/place]", {"place": {"code": "12"}}),
        ("[place][item]12[/item][/place]", {"place": {"item": "12"}}),
        ("[place][/place]", {"place": {}}),
        ("[places][/places]", {"places": []}),
        (
            "[places]\n[item][days][item]1[/item][item]2[/item][/days]\n[/item]\n[/places]",
            {"places": [{"days": [1, 2]}]},
        ),
        ('[place]{"code": "12"}[/place]', {"place": {"code": "12"}}),
        ("[open]12[/open]", {"open": 12}),
        ("[open][item]12[/item][item]a[/item][/open]", {"open": [12, "a"]}),
        ("[open][item]12[/item][b]a[/b][/open]", {"open": {"item": 12, "b": "a"}}),
    ],
)
def test_the_schema_decides_what_elements_are_and_where_it_is_open_they_do(written: str, arguments: object) -> None:
    answer = write(written)
    whole = read(minimax_m3(), [answer], TOOLS)
    assert calls_of(whole) == [("book", arguments)]
    assert read(minimax_m3(), list(answer), TOOLS) == whole


@pytest.mark.parametrize(
    "written",
    ["[place][code]1[/place]", "[place]a[code]1[/code][/place]", "[place][][/][/place]", "[open][x]1[/y][/open]"],
)
def test_elements_that_do_not_match_are_text(written: str) -> None:
    answer = "See: " + write(written)
    pieces = read(minimax_m3(), list(answer), TOOLS)
    assert calls_of(pieces) == []
    assert text_of(pieces) == answer


def test_elements_may_not_stand_inside_each_other_without_end() -> None:
    answer = write("[open]" + "[a]" * 200)
    assert read(minimax_m3(), [answer], TOOLS)[-1] == TextPiece(answer)


def test_text_between_quotes_of_its_own_is_literal() -> None:
    answer = '<function name="book"><param name="title"><![CDATA[a </param> & b]]></param></function>'
    assert calls_of(read(MiniCpmDialect(), list(answer), TOOLS)) == [("book", {"title": "a </param> & b"})]
