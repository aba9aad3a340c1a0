"""The dialect that is told to a model whose template has no tools."""

from memra.chat.tool_dialects.contract import ArgumentsPiece, CallBegun, CallEnded
from memra.chat.tool_dialects.generic import GenericDialect
from tests.chat.tool_dialects.written_answers import TOOLS, read


def test_the_instructions_name_every_tool() -> None:
    instructions = GenericDialect().instructions(TOOLS)
    assert all(f'"name": "{tool["function"]["name"]}"' in instructions for tool in TOOLS)


def test_the_example_in_the_instructions_is_a_call_in_the_dialect() -> None:
    example = GenericDialect().instructions(TOOLS).split("<tool_call>")[1].split("</tool_call>")[0]
    answer = "<tool_call>" + example.replace("the tool's name", "now") + "</tool_call>"
    assert read(GenericDialect(), [answer]) == [
        CallBegun("now"),
        ArgumentsPiece('{"a parameter": "its value"}'),
        CallEnded(),
    ]


def test_no_template_asks_for_it() -> None:
    assert not GenericDialect().knows("<tool_call> tools")
