"""Thoughts are free, and the answer after them is bound."""

from typing import Any

import pytest

from memra.chat.chat_format import ChatFormat
from memra.chat.grammar import GrammarCompiler
from memra.chat.grammar_thinking import Phase, ThinkingFirst, Thoughts, ThoughtTokens
from memra.errors import GrammarDeadEndError, InvalidRequestError
from memra.messages.constraint import AnswerGrammar, GrammarKind, TokenConstraint
from memra.messages.generation import ChatPrompt, Prompt, TextPrompt
from memra.messages.prompt import RenderPrompt
from memra.messages.vocabulary import TokenType
from memra.types import ModelName, RequestId
from tests.chat.grammar_models import BOS, EOS, THINK, UNTHINK, make_tokenizer, make_vocabulary, read_mask, speak

TOKENIZER = make_tokenizer()
COMPILER = GrammarCompiler(TOKENIZER)
TOKENS = ThoughtTokens(TOKENIZER)
MARKS = next(marks for marks in TOKENS.opening_ids if marks.opening == "<think>")
ANSWER = AnswerGrammar(GrammarKind.JSON_SCHEMA, '{"enum":["yes","no"]}', "response_format")


def begin(phase: Phase) -> ThinkingFirst:
    return ThinkingFirst(COMPILER.compile(ANSWER), Thoughts(MARKS, phase), TOKENS)


def ids(text: str) -> tuple[int, ...]:
    return TOKENIZER.encode(text, add_special=False, parse_special=True)


def spelled(text: str) -> list[int]:
    return [TOKENIZER.pieces.index(bytes([byte])) for byte in text.encode()]


def accept(constraint: TokenConstraint, token_ids: Any) -> None:
    for token_id in token_ids:
        assert token_id in read_mask(constraint)
        assert constraint.accept(token_id)


def test_thoughts_may_be_anything_but_the_end():
    constraint = begin(Phase.THINKING)
    accept(constraint, ids("anything <s> at all, {}\n"))
    assert read_mask(constraint) == [token for token in range(TOKENIZER.vocab_size) if token not in TOKENIZER.eos_ids]


@pytest.mark.parametrize("closing", [[UNTHINK], spelled("</think>"), [TOKENIZER.find_token("</"), *spelled("think>")]])
@pytest.mark.parametrize("gap", ["", "\n", "\n\n"])
def test_the_answer_is_bound_after_the_closing_mark(closing: list[int], gap: str):
    constraint = begin(Phase.THINKING)
    accept(constraint, [*ids("hm"), *closing, *ids(gap)])
    accept(constraint, ids('"ye'))
    assert read_mask(constraint) == [TOKENIZER.pieces.index(b"s")]


def test_the_gap_is_newlines_and_only_one_token_of_them():
    constraint = begin(Phase.THINKING)
    accept(constraint, [UNTHINK])
    newline, two = TOKENIZER.pieces.index(b"\n"), TOKENIZER.pieces.index(b"\n\n")
    assert {newline, two} < set(read_mask(constraint))
    accept(constraint, [newline])
    assert not {newline, two} & set(read_mask(constraint))


def test_a_token_that_closes_thoughts_may_begin_the_answer():
    tokenizer = make_tokenizer()
    pieces = list(tokenizer.pieces)
    pieces[-1], pieces[-2], pieces[-3] = b'k>\n\n"y', b'k>"n', b"k>  wrong"
    tokenizer = type(tokenizer)(
        **{name: getattr(tokenizer, name) for name in tokenizer.__slots__} | {"pieces": tuple(pieces)}
    )
    grammar = GrammarCompiler(tokenizer).compile(ANSWER)
    for token, rest in ((-1, b"e"), (-2, b"o")):
        constraint = ThinkingFirst(grammar.copy(), Thoughts(MARKS, Phase.THINKING), ThoughtTokens(tokenizer))
        accept(constraint, [*spelled("</thin"), tokenizer.vocab_size + token])
        assert [tokenizer.pieces[token_id] for token_id in read_mask(constraint)] == [rest]
    constraint = ThinkingFirst(grammar.copy(), Thoughts(MARKS, Phase.THINKING), ThoughtTokens(tokenizer))
    accept(constraint, spelled("</thin"))
    with pytest.raises(GrammarDeadEndError):
        constraint.accept(tokenizer.vocab_size - 3)


def test_a_model_that_opens_its_thoughts_itself_may_but_need_not():
    accept(constraint := begin(Phase.MAY_THINK), [THINK, *ids("hm"), UNTHINK])
    accept(constraint, ids('"n'))
    accept(constraint := begin(Phase.MAY_THINK), ids('"n'))
    assert THINK not in read_mask(constraint)


def test_the_answer_after_thoughts_ends_like_any_other():
    for seed in range(20):
        constraint = begin(Phase.GAP)
        assert speak(constraint, TOKENIZER, seed=seed).strip() in (b'"yes"', b'"no"')


def test_a_copy_thinks_on_by_itself():
    constraint = begin(Phase.THINKING)
    accept(constraint, spelled("a</thi"))
    twin = constraint.copy()
    accept(constraint, spelled("nk>"))
    assert EOS not in read_mask(constraint)
    assert len(read_mask(twin)) > len(read_mask(constraint))
    accept(twin, spelled('nk>"y'))
    accept(constraint, spelled('"n'))
    assert read_mask(twin) != read_mask(constraint)


THINKS = "{% if enable_thinking is undefined or enable_thinking %}<think>{% endif %}"


@pytest.mark.parametrize(
    ("prompt", "template", "phase"),
    [
        ("hi<think>\n", "x", Phase.THINKING),
        ("hi<think>\n\n</think>\n\n", THINKS, None),
        ("hi", THINKS, Phase.MAY_THINK),
        ("hi <think> is a mark", "x", None),
        ("hi", "x", None),
        ("<|start|>assistant", "<|channel|>", Phase.THINKING),
        ("<|start|>assistant", "x", None),
    ],
)
def test_the_prompts_last_words_tell_how_an_answer_begins(prompt: str, template: str, phase: Phase | None):
    found = TOKENS.find(ids(prompt), template=template)
    assert (None if found is None else found.phase) is phase


def _render(chat_format: ChatFormat, prompt: Prompt, grammar: AnswerGrammar | None = ANSWER) -> TokenConstraint | None:
    command = RenderPrompt(RequestId("r"), ModelName("m"), prompt, grammar=grammar)
    return chat_format.render(command).constraint


@pytest.fixture
def thinking_format() -> ChatFormat:
    vocabulary = make_vocabulary(
        token_types=tuple(
            TokenType.CONTROL if BOS <= token_id <= UNTHINK else TokenType.NORMAL
            for token_id in range(TOKENIZER.vocab_size)
        ),
        chat_template="{{ messages[0].content }}{% if enable_thinking %}<think>\n{% endif %}",
    )
    return ChatFormat.build(vocabulary, context_tokens=100)


def test_the_template_says_whether_an_answer_begins_with_thoughts(thinking_format: ChatFormat):
    messages = ({"role": "user", "content": "hi"},)
    thinking = _render(thinking_format, ChatPrompt(messages, template_options={"enable_thinking": True}))
    assert len(read_mask(thinking)) > 200
    plain = _render(thinking_format, ChatPrompt(messages))
    assert {THINK, TOKENIZER.pieces.index(b'"')} <= set(read_mask(plain))
    assert len(read_mask(plain)) < 5
    assert THINK not in read_mask(_render(thinking_format, TextPrompt("hi")))
    assert _render(thinking_format, TextPrompt("hi"), None) is None


def test_a_grammar_is_refused_before_anything_is_generated(thinking_format: ChatFormat):
    bad = AnswerGrammar(GrammarKind.JSON_SCHEMA, '{"not":{}}', "response_format")
    with pytest.raises(InvalidRequestError, match="'not'") as refused:
        _render(thinking_format, TextPrompt("hi"), bad)
    assert refused.value.param == "response_format"
