"""Grammars in every language that clients write them in: what is refused, and what the rest allow."""

import contextlib
import json
import re
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLParserLimits

from memra.chat.grammar import GrammarCompiler
from memra.chat.grammar_deadline import CompileDeadline
from memra.chat.grammar_limits import MAX_SCHEMA_LEVELS, MAX_SCHEMA_VALUES, MAX_SOURCE_BYTES
from memra.chat.grammar_matcher import GrammarMatcher
from memra.chat.grammar_tokens import GrammarTokens
from memra.errors import BusyError, GrammarDeadEndError, InvalidRequestError
from memra.messages.constraint import AnswerGrammar, GrammarKind
from tests.chat.grammar_models import BOS, END, EOS, is_valid, is_valid_text, make_tokenizer, read_mask, speak

TOKENIZER = make_tokenizer()
COMPILER = GrammarCompiler(TOKENIZER)


def compile_grammar(kind: GrammarKind, source: str) -> GrammarMatcher:
    return COMPILER.compile(AnswerGrammar(kind, source, "field"))


def compile_schema(schema: Any) -> GrammarMatcher:
    return compile_grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))


def accept_text(constraint: GrammarMatcher, text: str) -> bool:
    """Whether the answer may go on after a text."""
    *first, last = TOKENIZER.encode(text, add_special=False, parse_special=False)
    for token_id in first:
        assert constraint.accept(token_id)
    return constraint.accept(last)


def allows(constraint: GrammarMatcher, text: str) -> bool:
    """Whether an answer may be this text and end there."""
    for token_id in text.encode():
        spelled = TOKENIZER.pieces.index(bytes([token_id]))
        if spelled not in read_mask(constraint):
            return False
        if not constraint.accept(spelled):
            break
    return EOS in read_mask(constraint)


LEAVES = st.one_of(
    st.builds(lambda n: {"type": "string", "maxLength": n}, st.integers(0, 12)),
    st.builds(lambda n: {"type": "string", "minLength": n, "maxLength": n + 3}, st.integers(0, 5)),
    st.sampled_from(["^[a-c]{2,4}$", "^(x|yz)+$", r"^\d{3}-\d{2}$", "^a.b$"]).map(
        lambda pattern: {"type": "string", "pattern": pattern}
    ),
    st.lists(
        st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.text(max_size=4)), min_size=1, max_size=4
    ).map(lambda values: {"enum": values}),
    st.integers(-50, 50).map(lambda low: {"type": "integer", "minimum": low, "maximum": low + 120}),
    st.sampled_from([{"type": "number"}, {"type": "boolean"}, {"type": "null"}, {"$ref": "#/$defs/shared"}]),
)
NAMES = st.text('abcdé"\\ ', min_size=1, max_size=4)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(NAMES, inner, max_size=4).flatmap(
        lambda properties: st.sets(st.sampled_from(sorted(properties)) if properties else st.nothing()).map(
            lambda required: {
                "type": "object",
                "properties": properties,
                "required": sorted(required),
                "additionalProperties": False,
            }
        )
    )


def _arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda items, low, more: {"type": "array", "items": items, "minItems": low, "maxItems": low + more},
        *(inner, st.integers(0, 3), st.integers(0, 3)),
    )


SCHEMAS = st.builds(
    lambda schema, shared: {**schema, "$defs": {"shared": shared}},
    st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            _objects(inner),
            _arrays(inner),
            st.lists(inner, min_size=1, max_size=3).map(lambda any_of: {"anyOf": any_of}),
        ),
        max_leaves=8,
    ),
    _objects(st.just({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2})),
)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(schema=SCHEMAS, seed=st.integers(0, 2**32 - 1))
def test_whatever_is_said_under_a_schema_is_valid(schema: dict[str, Any], seed: int):
    said = speak(compile_schema(schema), TOKENIZER, seed=seed)
    assert is_valid_text(said, schema), (said, schema)


def test_the_check_itself_finds_fault():
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": [1]}, "minItems": 1}}}
    assert is_valid({"a": [1]}, schema, schema)
    for wrong in ([], {"a": []}, {"a": [2]}, {"a": [True]}):
        assert not is_valid(wrong, schema, schema)


@settings(deadline=None, max_examples=100, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_object_is_an_object(seed: int):
    said = speak(compile_schema({"type": "object"}), TOKENIZER, seed=seed)
    assert isinstance(json.loads(said), dict)


@pytest.mark.parametrize("pattern", ["a+b", "[0-9]{2,4}", "(yes|no)", "é{2}", r"[a-z]{1,5}\d!", "(?i)abc"])
def test_whatever_is_said_under_a_regular_expression_matches_it(pattern: str):
    for seed in range(20):
        said = speak(compile_grammar(GrammarKind.REGEX, pattern), TOKENIZER, seed=seed)
        assert re.fullmatch(pattern, said.decode())


LISTS = (
    'start: "[" item ("," item)* "]"\nitem: /[a-z]+/ | start',
    'root ::= "[" item ("," item)* "]" # nested\nitem ::= [a-z]+ | root\n',
)


@pytest.mark.parametrize("source", LISTS)
def test_lark_and_gbnf_say_the_same(source: str):
    for text in ("[a]", "[a,bc]", "[[a],[b,[c]]]"):
        assert allows(compile_grammar(GrammarKind.RULES, source), text)
    for text in ("[]", "[a", "[a,]", "a", "[A]"):
        assert not allows(compile_grammar(GrammarKind.RULES, source), text)


def test_gbnf_is_told_by_its_rules_and_not_by_its_marks():
    assert allows(compile_grammar(GrammarKind.RULES, 'start: "a ::= b"'), "a ::= b")


@pytest.mark.parametrize(
    ("kind", "source", "answer"),
    [
        (GrammarKind.JSON_SCHEMA, '{"enum":[7]}', "7"),
        (GrammarKind.REGEX, "a+", "aa"),
        (GrammarKind.RULES, 'start: item\nitem: "b"', "b"),
        (GrammarKind.RULES, 'root ::= item\nitem ::= "b"', "b"),
    ],
)
def test_an_answer_may_be_calls_of_tools_instead(kind: GrammarKind, source: str, answer: str):
    calls = f'start: <[{BOS}]> item\nitem: "f(" /[0-9]+/ ")"\n'

    def begin() -> GrammarMatcher:
        return COMPILER.compile(AnswerGrammar(kind, source, "field"), calls=calls)

    assert allows(begin(), answer)
    assert not allows(begin(), "f(1)")
    constraint = begin()
    assert constraint.accept(BOS)
    assert not allows(constraint, answer)
    constraint = begin()
    constraint.accept(BOS)
    assert allows(constraint, "f(12)")


def test_an_answer_ends_where_nothing_can_follow():
    assert not accept_text(compile_schema({"type": "object"}), '{"a":1}')
    assert accept_text(compile_schema({"type": "integer"}), "12")


def test_a_complete_answer_may_only_end():
    constraint = compile_grammar(GrammarKind.REGEX, "")
    assert read_mask(constraint) == sorted(TOKENIZER.eos_ids) == [EOS, END]


def test_an_answer_may_end_only_where_it_is_complete():
    constraint = compile_grammar(GrammarKind.REGEX, "a{2,3}")
    assert EOS not in read_mask(constraint)
    accept_text(constraint, "aa")
    assert EOS in read_mask(constraint)


def test_no_control_token_stands_for_text():
    constraint = compile_grammar(GrammarKind.REGEX, "<s>.*")
    assert BOS not in read_mask(constraint)
    accept_text(constraint, "<s>")
    assert BOS not in read_mask(constraint)


def test_white_space_in_json_has_an_end():
    constraint = compile_schema({"type": "object", "required": ["a"]})
    accept_text(constraint, "{\n" + " " * 40)
    assert read_mask(constraint) == [TOKENIZER.pieces.index(b'"')]


@pytest.mark.parametrize("indent", [None, 1, 4, "\t"])
def test_json_may_be_printed_in_every_usual_way(indent: int | str | None):
    value = {"a": [1, {"b": [True, None, []]}], "c": {}, "d": "e f"}
    for separators in (None, (",", ":")):
        is_open = accept_text(
            compile_schema({"type": "object"}), json.dumps(value, indent=indent, separators=separators)
        )
        assert not is_open


def test_a_copy_goes_its_own_way():
    constraint = compile_schema({"enum": ["ab", "ac"]})
    accept_text(constraint, '"a')
    twin = constraint.copy()
    accept_text(constraint, "b")
    assert read_mask(twin) == [TOKENIZER.pieces.index(b"b"), TOKENIZER.pieces.index(b"c")]


def test_a_copy_that_accepts_the_known_tokens_stands_where_the_first_stood():
    schema = {"type": "array", "items": {"type": "string", "maxLength": 9}, "minItems": 2, "maxItems": 4}
    first, again = compile_schema(schema), compile_schema(schema).copy()
    for token_id in TOKENIZER.encode('["abc", "d', add_special=False, parse_special=False):
        assert first.accept(token_id)
        assert again.accept(token_id)
        assert read_mask(first) == read_mask(again)


def test_a_forbidden_token_is_a_dead_end():
    constraint = compile_schema({"type": "object"})
    with pytest.raises(GrammarDeadEndError):
        accept_text(constraint, "no")
    with pytest.raises(GrammarDeadEndError):
        constraint.allowed()


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"not": {"type": "string"}}, "not"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"if": {}, "then": {}}, "if"),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, "type"),
        ({"type": "string", "pattern": "(?=x)y"}, "pattern"),
        ({"type": "string", "pattern": "("}, "pattern"),
        ({"type": "string", "format": "telegram"}, "format"),
        ({"type": "string", "minLength": -1}, "minLength"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "minItems"),
        ({"$ref": "#/$defs/nowhere"}, "$ref"),
        ({"$ref": "https://example.com/schema"}, "$ref"),
        ({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]}, "oneOf"),
    ],
)
def test_a_schema_that_no_answer_can_be_held_to_is_refused_by_its_keyword(schema: dict[str, Any], keyword: str):
    with pytest.raises(InvalidRequestError) as refused:
        compile_schema(schema)
    assert refused.value.param == "field"
    assert keyword in refused.value.message
    assert "`field`" in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("schema", [False, {"$ref": "#"}, {"enum": []}])
def test_a_schema_that_nothing_matches_is_refused(schema: Any):
    with pytest.raises(InvalidRequestError, match="cannot be held to"):
        compile_schema(schema)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        (GrammarKind.RULES, ""),
        (GrammarKind.RULES, "start: nowhere"),
        (GrammarKind.RULES, 'root ::= "a" | nowhere'),
        (GrammarKind.RULES, "root ::= " + "(" * 5000),
        (GrammarKind.REGEX, "a("),
        (GrammarKind.REGEX, "(?=a)b"),
    ],
)
def test_a_grammar_that_is_none_is_refused(kind: GrammarKind, source: str):
    with pytest.raises(InvalidRequestError, match="the grammar in `field` is not valid") as refused:
        compile_grammar(kind, source)
    assert refused.value.param == "field"
    assert "\n" not in refused.value.message


def _nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        (GrammarKind.REGEX, "a" * (MAX_SOURCE_BYTES + 1)),
        (GrammarKind.JSON_SCHEMA, json.dumps({"title": "a" * MAX_SOURCE_BYTES})),
        (GrammarKind.JSON_SCHEMA, json.dumps(_nested(MAX_SCHEMA_LEVELS))),
        (GrammarKind.JSON_SCHEMA, json.dumps({"enum": list(range(MAX_SCHEMA_VALUES))})),
    ],
)
def test_a_grammar_that_is_too_large_is_refused(kind: GrammarKind, source: str):
    with pytest.raises(InvalidRequestError, match="send a smaller one"):
        compile_grammar(kind, source)


def test_a_model_that_cannot_end_an_answer_takes_no_grammar():
    compiler = GrammarCompiler(make_tokenizer(eos_id=None, tokens=tuple(map(chr, range(0x100, 0x120))), token_types=()))
    with pytest.raises(InvalidRequestError, match="no token that ends an answer"):
        compiler.compile(AnswerGrammar(GrammarKind.REGEX, "a", "regex"))


def test_an_answer_that_costs_too_much_is_a_dead_end_for_itself_alone():
    compiler = GrammarCompiler(TOKENIZER, limits=LLParserLimits(max_lexer_states=100, verbose_errors=False))
    grammar = AnswerGrammar(GrammarKind.REGEX, "(a|b)*a(a|b){14}", "regex")
    greedy, modest = compiler.compile(grammar), compiler.compile(grammar)
    random = np.random.default_rng(0)
    text = "".join(random.choice(["a", "b"], 400))
    with pytest.raises(GrammarDeadEndError):
        allows(greedy, text)
    assert allows(modest, "a" * 15)


def test_a_compiler_that_breaks_down_takes_nobody_with_it():
    def panic() -> int:
        raise BaseException("unreachable code")  # noqa: TRY002  (what Rust's panics are to Python)

    with pytest.raises(InvalidRequestError, match="broke down"):
        CompileDeadline().run(panic, param="regex")


def test_options_of_which_one_at_most_can_hold_may_be_one_of():
    schema = {"oneOf": [{"type": "string", "maxLength": 4}, {"type": "integer"}]}
    assert {type(json.loads(speak(compile_schema(schema), TOKENIZER, seed=seed))) for seed in range(30)} == {str, int}


ANY_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *(
                        "type",
                        "properties",
                        "items",
                        "enum",
                        "const",
                        "required",
                        "pattern",
                        "minItems",
                        "maxItems",
                        "$ref",
                    ),
                    *(
                        "minLength",
                        "anyOf",
                        "allOf",
                        "oneOf",
                        "format",
                        "prefixItems",
                        "minimum",
                        "multipleOf",
                        "$defs",
                    ),
                    *(
                        "additionalProperties",
                        "patternProperties",
                        "x-guidance",
                        "maxLength",
                        "$id",
                        "definitions",
                        "not",
                    ),
                ]
            ),
            inner | st.sampled_from(["object", "array", "string", "#/$defs/type", "#"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(schema=st.dictionaries(st.sampled_from(["type", "anyOf", "properties", "items", "$ref", "enum"]), ANY_JSON))
def test_whatever_calls_itself_a_schema_is_compiled_or_refused(schema: dict[str, Any]):
    try:
        constraint = compile_schema(schema)
    except InvalidRequestError:
        return
    assert read_mask(constraint)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(kind=st.sampled_from(GrammarKind), source=st.text('abr:=()[]{}|*+?\\"/ \n#@%<>0é\x00\ud800', max_size=30))
def test_whatever_calls_itself_a_grammar_is_compiled_or_refused(kind: GrammarKind, source: str):
    for text in (source, f"root ::= {source}", f"start: {source}"):
        with contextlib.suppress(InvalidRequestError):
            assert read_mask(compile_grammar(kind, text))


def test_what_takes_too_long_is_given_up_and_bounded():
    deadline = CompileDeadline(seconds=0.0, max_abandoned=2)
    go_on = threading.Event()
    for _ in range(2):
        with pytest.raises(BusyError, match="simplify"):
            deadline.run(go_on.wait, param="regex")
    with pytest.raises(BusyError, match="other requests"):
        deadline.run(lambda: 1, param="regex")
    go_on.set()
    for thread in list(deadline._abandoned):
        thread.join()
    assert CompileDeadline().run(lambda: 1, param="regex") == 1


def test_a_compiler_that_is_ready_makes_no_vocabulary_at_the_first_grammar(monkeypatch: pytest.MonkeyPatch):
    compiler = GrammarCompiler(make_tokenizer())
    compiler.prepare()
    monkeypatch.delattr(GrammarTokens, "build")
    compiler.compile(AnswerGrammar(GrammarKind.REGEX, "a+", "regex"))


def test_a_model_that_ends_no_answer_is_ready_for_nothing():
    GrammarCompiler(make_tokenizer(eos_id=None)).prepare()
