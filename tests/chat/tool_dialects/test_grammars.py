"""Forced calls: what a dialect's grammar allows, its own parser reads as calls and nothing else."""

import json
import random
import re
from typing import Any

import numpy as np
import pytest

from memra.chat.tool_dialects.lark_grammar import MAX_CALLS, with_tokens
from memra.chat.tool_dialects.registry import find_dialect
from tests.chat.tool_dialects.written_answers import WRITTEN, Written, calls_of, read, text_of

llguidance = pytest.importorskip("llguidance")
masks = pytest.importorskip("llguidance.numpy")

_TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "unit": {"type": "string", "enum": ["c", "f"]},
                    "place": {"$ref": "#/$defs/Place"},
                },
                "required": ["city", "unit"],
                "additionalProperties": False,
                "$defs": {
                    "Place": {
                        "type": "object",
                        "properties": {"at": {"type": "array", "items": {"type": "number"}}},
                        "required": ["at"],
                        "additionalProperties": False,
                    }
                },
            },
        },
    },
    {"type": "function", "function": {"name": "now"}},
    {"type": "function", "function": {"name": "never_named"}},
]
_NAMES = ["get_weather", "now"]
_MAX_BYTES = 3000
_LIKELY = frozenset(b'abc 12.,x"<}])|\n:{[')
_CLOSING = frozenset(b'"<}])|\n/')

_EVERY = pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN.keys())


def _answer_of(grammar: str, *, seed: int) -> str:
    """A random answer that a grammar allows; text is ended soon, or no answer would ever be complete."""
    tokenizer = llguidance.LLTokenizer("byte")
    matcher = llguidance.LLMatcher(tokenizer, grammar)
    assert not matcher.is_error(), matcher.get_error()
    ends = [json.loads(end).encode() for end in re.findall(r'suffix=("(?:[^"\\]|\\.)*")', grammar)]
    chance = random.Random(seed)  # noqa: S311  (no secret)
    mask = masks.allocate_token_bitmask(1, tokenizer.vocab_size)
    answer = bytearray()
    while not matcher.is_stopped():
        assert len(answer) < _MAX_BYTES
        masks.fill_next_token_bitmask(matcher, mask)
        allowed = set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())
        if tokenizer.eos_token in allowed and chance.random() < 0.5:
            assert matcher.consume_token(tokenizer.eos_token)
            continue
        pieces = _choices(allowed - {tokenizer.eos_token}, ends, chance)
        piece = next(piece for piece in pieces if matcher.validate_tokens(piece) == len(piece))
        assert matcher.consume_tokens(piece)
        answer += bytes(piece)
    return answer.decode()


def _choices(allowed: set[int], ends: list[bytes], chance: random.Random) -> list[list[int]]:
    likely = sorted(allowed & _CLOSING) if chance.random() < 0.4 else []
    one = chance.choice(likely or sorted(allowed & _LIKELY) or sorted(byte for byte in allowed if byte < 256))
    return [*([list(end) for end in ends] if chance.random() < 0.2 else []), [one]]


@_EVERY
@pytest.mark.parametrize("at_least_one", [True, False])
def test_what_a_grammar_allows_is_read_as_calls(written: Written, *, at_least_one: bool) -> None:
    grammar = written.dialect.grammar(_TOOLS, names=_NAMES, at_least_one=at_least_one)
    for seed in range(8):
        answer = _answer_of(grammar, seed=seed)
        pieces = read(written.dialect, [answer], _TOOLS)
        assert text_of(pieces) == "", answer
        calls = calls_of(pieces)
        assert len(calls) == 1 or (at_least_one and calls), answer
        for name, arguments in calls:
            assert name in _NAMES
            if name == "get_weather":
                assert isinstance(arguments["city"], str)
                assert arguments["unit"] in {"c", "f"}
                assert isinstance(arguments.get("days", 1), int)
                assert arguments.keys() <= {"city", "unit", "days", "place"}


@_EVERY
def test_a_named_tool_is_the_only_one(written: Written) -> None:
    grammar = written.dialect.grammar(_TOOLS, names=["now"], at_least_one=False)
    for seed in range(3):
        pieces = read(written.dialect, [_answer_of(grammar, seed=seed)], _TOOLS)
        assert [name for name, _ in calls_of(pieces)] == ["now"]


@_EVERY
def test_every_marker_that_is_a_token_gets_its_place_in_the_grammar(written: Written) -> None:
    """No marker is left inside other text, where a token could not take its place."""
    grammar = written.dialect.grammar(_TOOLS, names=_NAMES, at_least_one=True)
    ids = {token: 1000 + index for index, token in enumerate(written.dialect.tokens)}
    replaced = with_tokens(grammar, ids.get)
    left = [token for token in ids if json.dumps(token, ensure_ascii=False)[1:-1] in replaced]
    assert left == []
    assert all(f"<[{token_id}]>" in replaced for token, token_id in ids.items() if token in grammar)


def test_a_marker_that_is_no_token_stays_text() -> None:
    grammar = find_dialect("<tool_call>").grammar(_TOOLS, names=_NAMES, at_least_one=True)
    assert with_tokens(grammar, {"<tool_call>": 7}.get) == grammar.replace('marker_0: "<tool_call>"', "marker_0: <[7]>")


@_EVERY
def test_an_answer_holds_no_more_calls_than_it_may(written: Written) -> None:
    grammar = written.dialect.grammar(_TOOLS, names=["now"], at_least_one=True)
    for seed in range(3):
        pieces = read(written.dialect, [_answer_of(grammar, seed=seed)], _TOOLS)
        assert len(calls_of(pieces)) <= MAX_CALLS
    assert ")*" not in grammar
