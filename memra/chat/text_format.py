"""What one embedding or ranking model knows about text: its tokenizer, what stands around a text, and how a pair reads.

Trade: whole texts become token ids of which a vector or a score is made; one that the model cannot take is refused
here, before the worker hears of it. Refuses to know the model's weights and the wire. Built once per model; immutable
afterwards. Called by templating. `chat_format` does the same for a model that generates.
"""

from dataclasses import dataclass

from memra.chat.tokenizer import Tokenizer, build_tokenizer
from memra.errors import ContextLengthError, InvalidRequestError, UnsupportedModelError, WrongTaskError
from memra.messages.generation import ChatPrompt, TextPrompt, TokenPrompt
from memra.messages.prompt import PromptRendered, RenderPrompt
from memra.messages.texts import (
    DetokenizeIds,
    DetokenizeRequest,
    PoolableText,
    RenderTexts,
    TextPair,
    TextsRendered,
    TextTokenized,
    TokenizeRequest,
    TokenizeText,
)
from memra.messages.vocabulary import Vocabulary
from memra.types import ModelName, ModelTask, TokenId

RANK_TEMPLATE = "rerank"
"""The name under which files carry the text of a pair, with `{query}` and `{document}` in it (llama.cpp's)."""
_ROBERTA_BEGIN = "<s>"
"""Where a text begins so, two separators stand between the parts of a pair, as in RoBERTa and XLM-RoBERTa."""

_DEEDS = {
    ModelTask.GENERATE: ("generates text", "/v1/chat/completions or /v1/completions"),
    ModelTask.EMBED: ("makes embeddings", "/v1/embeddings"),
    ModelTask.RANK: ("ranks documents", "/v1/rerank"),
}


def wrong_task(model: ModelName, task: ModelTask) -> str:
    """Return what a client is told that asks a model for something else than it does."""
    deed, path = _DEEDS[task]
    return f"Model {model} {deed}: ask it through {path}, or name another model; /v1/models says what each does."


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Texts to tokens for one model.

    As in `transformers`, the names of special tokens are those tokens wherever they stand in a text; in the parts of a
    pair without a template they are plain words, so that a document cannot end itself.

    Attributes:
        task: `EMBED` or `RANK`.
        context_tokens: longest text.
        pair_template: how a pair reads; None puts the model's own separators between its parts.
    """

    tokenizer: Tokenizer
    task: ModelTask
    context_tokens: int
    pair_template: str | None = None

    @classmethod
    def build(cls, vocabulary: Vocabulary, *, task: ModelTask, context_tokens: int, is_causal: bool) -> "TextFormat":
        """Build the format of a model.

        Args:
            vocabulary: of its files.
            task: `EMBED` or `RANK`.
            context_tokens: longest text.
            is_causal: the model reads from left to right, so that a pair needs words that ask the question.

        Raises:
            UnsupportedModelError: the tokenizer is of no known kind, or a causal ranking model has no template.
            CorruptFileError: the vocabulary contradicts itself.
        """
        template = vocabulary.named_templates.get(RANK_TEMPLATE)
        if task is ModelTask.RANK and is_causal and template is None:
            raise UnsupportedModelError(
                f"this ranking model's file has no template named {RANK_TEMPLATE!r}, so nobody knows how to ask it; "
                "convert it again with one"
            )
        return cls(build_tokenizer(vocabulary), task, context_tokens, template)

    def render(self, command: RenderPrompt) -> PromptRendered:
        """Refuse a prompt: this model generates nothing.

        Raises:
            WrongTaskError: always.
        """
        raise WrongTaskError(wrong_task(command.model, self.task), param="model")

    def render_texts(self, command: RenderTexts) -> TextsRendered:
        """Turn texts into token ids, with what the model wants around each; ids that came as ids stay as they are.

        Raises:
            WrongTaskError: the model is asked for what it does not do.
            InvalidRequestError: a text is empty, or has ids outside the vocabulary.
            ContextLengthError: a text is too long.
        """
        if command.task is not self.task:
            raise WrongTaskError(wrong_task(command.model, self.task), param="model")
        return TextsRendered(
            tuple(self._encode(text, command.param, index) for index, text in enumerate(command.texts, command.first))
        )

    def tokenize(self, command: TokenizeText) -> TextTokenized:
        """Turn a text into token ids, as it was asked for.

        Raises:
            WrongTaskError: the prompt is a chat.
            InvalidRequestError: the prompt has ids outside the vocabulary.
        """
        wanted = command.wanted
        if isinstance(wanted.prompt, ChatPrompt):
            raise WrongTaskError(wrong_task(wanted.model, self.task), param=wanted.prompt.param)
        return tokenize_text(self.tokenizer, wanted, context_tokens=self.context_tokens)

    def detokenize(self, command: DetokenizeIds) -> str:
        """Return the text of token ids, control tokens by their names.

        Raises:
            InvalidRequestError: an id is outside of the vocabulary.
        """
        return detokenize_ids(self.tokenizer, command.wanted)

    def _encode(self, text: PoolableText, param: str, index: int) -> tuple[TokenId, ...]:
        place = f"`{param}[{index}]`"
        match text:
            case TextPrompt():
                token_ids = self.tokenizer.encode(text.text, add_special=True, parse_special=True)
            case TokenPrompt():
                token_ids = text.token_ids
                check_ids(self.tokenizer, token_ids, param=param, place=place)
            case TextPair():
                token_ids = self._encode_pair(text)
        if not token_ids:
            raise InvalidRequestError(f"{place} has no tokens; send some text.", param=param)
        if len(token_ids) > self.context_tokens:
            raise ContextLengthError(
                f"{place} has {len(token_ids)} tokens, but the model takes {self.context_tokens} at most; "
                "shorten it, or cut it into several texts.",
                param=param,
            )
        return token_ids

    def _encode_pair(self, pair: TextPair) -> tuple[TokenId, ...]:
        if self.pair_template is not None:
            # The document last, since a query may spell the document's mark.
            head, mark, tail = self.pair_template.partition("{document}")
            head, tail = (part.replace("{query}", pair.query) for part in (head, tail))
            text = head + (pair.document if mark else "") + tail
            return self.tokenizer.encode(text, add_special=True, parse_special=True)
        tokenizer = self.tokenizer
        query, document = (
            tokenizer.encode(part, add_special=False, parse_special=False) for part in (pair.query, pair.document)
        )
        prefix, suffix = tokenizer.prefix_ids, tokenizer.suffix_ids
        begins_so = bool(prefix) and tokenizer.tokens[prefix[0]] == _ROBERTA_BEGIN
        return prefix + query + suffix + (suffix if begins_so else ()) + document + suffix


def tokenize_text(tokenizer: Tokenizer, wanted: TokenizeRequest, *, context_tokens: int) -> TextTokenized:
    """Tokenize a text, or check ids, as a client asked for.

    Raises:
        InvalidRequestError: an id is outside of the vocabulary.
    """
    if isinstance(wanted.prompt, TokenPrompt):
        check_ids(tokenizer, wanted.prompt.token_ids, param=wanted.prompt.param, place=f"`{wanted.prompt.param}`")
        return TextTokenized(wanted.prompt.token_ids, context_tokens)
    assert isinstance(wanted.prompt, TextPrompt)  # noqa: S101  (chats are rendered by whoever has a template)
    ids = tokenizer.encode(wanted.prompt.text, add_special=wanted.add_special, parse_special=wanted.parse_special)
    return TextTokenized(ids, context_tokens)


def detokenize_ids(tokenizer: Tokenizer, wanted: DetokenizeRequest) -> str:
    """Return the text of token ids, control tokens by their names.

    Raises:
        InvalidRequestError: an id is outside of the vocabulary.
    """
    check_ids(tokenizer, wanted.token_ids, param="tokens", place="`tokens`")
    return tokenizer.decode(wanted.token_ids, show_control=True)


def check_ids(tokenizer: Tokenizer, token_ids: tuple[TokenId, ...], *, param: str, place: str) -> None:
    """Refuse ids that the vocabulary does not have.

    Args:
        tokenizer: has the vocabulary.
        token_ids: as a client sent them.
        param: request field that they came in.
        place: how to call it in the message.

    Raises:
        InvalidRequestError: names the first such id and its position.
    """
    vocab_size = tokenizer.vocab_size
    for position, token_id in enumerate(token_ids):
        if not 0 <= token_id < vocab_size:
            raise InvalidRequestError(
                f"{place} has token {token_id} at position {position}; ids of this model are 0 to {vocab_size - 1}.",
                param=param,
            )
