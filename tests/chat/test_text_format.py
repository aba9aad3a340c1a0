"""Whole texts, and pairs of them, to the tokens that an embedding or ranking model takes."""

from typing import Any

import pytest

from memra.chat.chat_format import ChatFormat
from memra.chat.text_format import RANK_TEMPLATE, TextFormat
from memra.errors import ContextLengthError, InvalidRequestError, UnsupportedModelError, WrongTaskError
from memra.messages.generation import ChatPrompt, TextPrompt, TokenPrompt
from memra.messages.prompt import RenderPrompt
from memra.messages.texts import DetokenizeIds, DetokenizeRequest, RenderTexts, TextPair, TokenizeRequest, TokenizeText
from memra.messages.vocabulary import TokenizerKind, TokenType, Vocabulary
from memra.types import ModelName, ModelTask, RequestId

WORDS = ("[UNK]", "[CLS]", "[SEP]", "\u2581hello", "\u2581big", "\u2581world")
UNKNOWN, CLS, SEP, HELLO, BIG, WORLD = range(6)
CONTROLS = (TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL) + (TokenType.NORMAL,) * 3


def vocabulary(**changes: Any) -> Vocabulary:
    values: dict[str, Any] = {
        "kind": TokenizerKind.WORDPIECE,
        "tokens": WORDS,
        "token_types": CONTROLS,
        "unknown_id": UNKNOWN,
        "cls_id": CLS,
        "separator_id": SEP,
    }
    return Vocabulary(**(values | changes))


def make_format(task: ModelTask = ModelTask.EMBED, *, is_causal: bool = False, **changes: Any) -> TextFormat:
    return TextFormat.build(vocabulary(**changes), task=task, context_tokens=6, is_causal=is_causal)


def render(made: TextFormat | ChatFormat, *texts: Any, task: ModelTask = ModelTask.EMBED, param: str = "input") -> Any:
    return made.render_texts(RenderTexts(RequestId("r"), ModelName("m"), task, texts, param)).sequences


def test_a_text_has_the_models_tokens_around_it_and_ids_stay_as_they_are():
    texts = TextPrompt("Hello world"), TokenPrompt((HELLO, SEP)), TextPrompt("big")
    assert render(make_format(), *texts) == ((CLS, HELLO, WORLD, SEP), (HELLO, SEP), (CLS, BIG, SEP))


def test_a_pair_has_a_separator_between_its_parts_and_a_document_cannot_end_itself():
    rank = make_format(ModelTask.RANK)
    (plain,) = render(rank, TextPair("hello", "big world"), task=ModelTask.RANK)
    assert plain == (CLS, HELLO, SEP, BIG, WORLD, SEP)
    with pytest.raises(ContextLengthError):  # read as a token it would be short enough
        render(rank, TextPair("hello", "[SEP]big"), task=ModelTask.RANK)


def test_a_pair_of_robertas_kind_has_two_separators():
    rank = make_format(ModelTask.RANK, tokens=("[UNK]", "<s>", "</s>", *WORDS[3:]))
    assert render(rank, TextPair("hello", "big"), task=ModelTask.RANK) == ((CLS, HELLO, SEP, SEP, BIG, SEP),)


def test_a_template_says_how_a_pair_reads_and_a_query_cannot_take_the_documents_place():
    templates = {RANK_TEMPLATE: "{query} big {document}"}
    rank = make_format(ModelTask.RANK, is_causal=True, named_templates=templates)
    assert render(rank, TextPair("hello", "world"), task=ModelTask.RANK) == ((CLS, HELLO, BIG, WORLD, SEP),)
    with pytest.raises(ContextLengthError):  # the braces and the name are tokens of the query
        render(rank, TextPair("{document}", "world"), task=ModelTask.RANK)


def test_a_causal_ranking_model_without_a_template_is_refused():
    with pytest.raises(UnsupportedModelError, match="no template named 'rerank'"):
        make_format(ModelTask.RANK, is_causal=True)


@pytest.mark.parametrize(
    ("text", "error", "named"),
    [
        (TextPrompt("hello " * 5), ContextLengthError, r"`input\[1\]` has 7 tokens, but the model takes 6"),
        (TokenPrompt((HELLO,) * 7), ContextLengthError, r"`input\[1\]` has 7 tokens"),
        (TokenPrompt((HELLO, 6)), InvalidRequestError, r"`input\[1\]` has token 6 at position 1; .*0 to 5"),
        (TokenPrompt(()), InvalidRequestError, r"`input\[1\]` has no tokens"),
    ],
)
def test_a_text_that_cannot_be_taken_is_named(text: Any, error: type[Exception], named: str):
    with pytest.raises(error, match=named) as refused:
        render(make_format(), TextPrompt("hello"), text)
    assert refused.value.param == "input"


def test_a_text_is_named_by_its_place_among_all():
    message = RenderTexts(RequestId("r"), ModelName("m"), ModelTask.EMBED, (TokenPrompt(()),), "input", first=7)
    with pytest.raises(InvalidRequestError, match=r"`input\[7\]`"):
        make_format().render_texts(message)


def test_a_text_as_long_as_the_context_is_taken():
    assert len(render(make_format(), TextPrompt("hello " * 4))[0]) == 6


def test_models_are_asked_for_what_they_do_alone():
    embed, rank = make_format(), make_format(ModelTask.RANK)
    chat = ChatFormat.build(vocabulary(chat_template="{{ messages[0].content }}"), context_tokens=9)
    pair, text = TextPair("hello", "big"), TextPrompt("hello")
    with pytest.raises(WrongTaskError, match="Model m makes embeddings: ask it through /v1/embeddings"):
        render(embed, pair, task=ModelTask.RANK)
    with pytest.raises(WrongTaskError, match="Model m ranks documents: ask it through /v1/rerank"):
        render(rank, text)
    with pytest.raises(WrongTaskError, match="Model m generates text: ask it through /v1/chat/completions"):
        render(chat, text)
    for made in (embed, rank):
        with pytest.raises(WrongTaskError) as refused:
            made.render(RenderPrompt(RequestId("r"), ModelName("m"), text))
        assert refused.value.param == "model"


def tokenize(made: TextFormat | ChatFormat, prompt: Any, **options: Any) -> tuple[int, ...]:
    wanted = TokenizeRequest(RequestId("r"), ModelName("m"), prompt, **options)
    return made.tokenize(TokenizeText(wanted)).token_ids


def test_tokens_of_a_text_stand_alone_unless_more_is_asked_for():
    for made in (make_format(), ChatFormat.build(vocabulary(), context_tokens=9)):
        assert tokenize(made, TextPrompt("hello")) == (HELLO,)
        assert tokenize(made, TextPrompt("hello"), add_special=True) == (CLS, HELLO, SEP)
        assert tokenize(made, TextPrompt("[SEP] hello")) == (SEP, HELLO)
        assert tokenize(made, TextPrompt("[SEP] hello"), parse_special=False) != (SEP, HELLO)
        assert tokenize(made, TextPrompt("hello " * 50)) == (HELLO,) * 50, "more than the context may be counted"
        assert tokenize(made, TextPrompt("")) == ()


def test_tokens_of_a_chat_are_those_of_its_template():
    chat = ChatFormat.build(vocabulary(chat_template="{{ messages[0].content }} big"), context_tokens=9)
    prompt = ChatPrompt([{"role": "user", "content": "hello"}])
    assert tokenize(chat, prompt) == (CLS, HELLO, BIG)
    with pytest.raises(WrongTaskError) as refused:
        tokenize(make_format(), prompt)
    assert refused.value.param == "messages"


def test_ids_become_text_with_control_tokens_by_their_names():
    for made in (make_format(), ChatFormat.build(vocabulary(), context_tokens=9)):
        ids = (CLS, HELLO, WORLD, SEP)
        text = made.detokenize(DetokenizeIds(DetokenizeRequest(RequestId("r"), ModelName("m"), ids)))
        assert tokenize(made, TextPrompt(text)) == ids
        with pytest.raises(InvalidRequestError, match="`tokens` has token 6 at position 0"):
            made.detokenize(DetokenizeIds(DetokenizeRequest(RequestId("r"), ModelName("m"), (6,))))
