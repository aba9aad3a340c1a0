"""Answers that must be calls, or may be calls beside a schema, in the words of the model's own template."""

import json
from typing import Any

import pytest

from memra.chat.chat_format import ChatFormat
from memra.errors import InvalidRequestError
from memra.messages.constraint import AnswerGrammar, GrammarKind
from memra.messages.generation import ChatPrompt
from memra.messages.prompt import AnswerPiece, PromptRendered, RenderPrompt
from memra.types import ModelName, RequestId
from tests.chat.grammar_models import make_vocabulary, speak

TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for message in messages %}{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}"
    "{% endfor %}"
)
FORMAT = ChatFormat.build(make_vocabulary(chat_template=TEMPLATE), context_tokens=5000)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 5}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("look", "tell")]
SEVEN = AnswerGrammar(GrammarKind.JSON_SCHEMA, '{"enum":[7]}', "response_format")


def render(grammar: AnswerGrammar | None = None, **fields: Any) -> PromptRendered:
    prompt = ChatPrompt(({"role": "user", "content": "hi"},), TOOLS, **fields)
    return FORMAT.render(RenderPrompt(RequestId("r"), ModelName("m"), prompt, grammar=grammar))


def read_random(rendered: PromptRendered, seed: int) -> list[AnswerPiece]:
    """An answer at random, as it is read token by token."""
    said = speak(rendered.constraint, FORMAT.tokenizer, seed=seed).decode()
    token_ids = FORMAT.tokenizer.encode(said, add_special=False, parse_special=False)
    return [*(rendered.reader.read((token_id,)) for token_id in token_ids), rendered.reader.finish()]


def answer(seed: int, grammar: AnswerGrammar | None = None, **fields: Any) -> tuple[list[str | None], str]:
    """Names of the calls in an answer at random, and its text."""
    pieces = read_random(render(grammar, **fields), seed)
    names = [call.name for piece in pieces for call in piece.tool_calls if call.name]
    return names, "".join(piece.text for piece in pieces)


def test_an_answer_that_must_call_calls_and_says_nothing_else():
    called = set()
    for seed in range(15):
        names, text = answer(seed, must_call=("look", "tell"))
        assert names
        assert text == ""
        called |= set(names)
    assert called == {"look", "tell"}


def test_a_named_tool_is_called_once():
    for seed in range(10):
        assert answer(seed, must_call=("tell",), is_single_call=True) == (["tell"], "")


def test_an_answer_with_tools_and_a_schema_is_one_or_the_other():
    answers = [answer(seed, SEVEN) for seed in range(30)]
    assert ([], "7") in answers
    assert any(names for names, _ in answers)
    assert all(bool(names) is (text == "") for names, text in answers)


def test_without_a_wish_nothing_is_bound():
    assert render().constraint is None


def test_a_forced_call_keeps_to_how_many_items_its_lists_must_have():
    cities = {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 2, "maxItems": 3}
    schema = {**SCHEMA, "properties": {"cities": cities}, "required": ["cities"]}
    tools = [{"type": "function", "function": {"name": "look", "parameters": schema}}]
    lengths = set()
    for seed in range(15):
        prompt = ChatPrompt(({"role": "user", "content": "hi"},), tools, must_call=("look",), is_single_call=True)
        pieces = read_random(FORMAT.render(RenderPrompt(RequestId("r"), ModelName("m"), prompt)), seed)
        arguments = "".join(call.arguments for piece in pieces for call in piece.tool_calls)
        lengths.add(len(json.loads(arguments)["cities"]))
    assert lengths == {2, 3}


def test_a_tool_whose_parameters_cannot_be_held_is_refused_where_a_call_is_forced():
    wrong = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "not": {}}}}]
    prompt = ChatPrompt(({"role": "user", "content": "hi"},), wrong, must_call=("f",))
    with pytest.raises(InvalidRequestError, match="not") as refused:
        FORMAT.render(RenderPrompt(RequestId("r"), ModelName("m"), prompt))
    assert refused.value.param == "tool_choice"
