"""`POST /v1/tokenize` and `/v1/detokenize` on the wire: the bodies, what they mean, and the answers.

A chat is rendered as the chat route would, fields of that route included; a text stands alone, without the tokens that
the model wants around it unless they are asked for. Refuses to know tokenizers. Called by `memra.http.routes.tokens`.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from memra.errors import InvalidRequestError
from memra.http.request_headers import Caller
from memra.http.wire.chat_request import ChatRequest, Message, read_chat_request
from memra.http.wire.refusal import refuse_unsupported
from memra.http.wire.sampling_fields import read_token_ids
from memra.messages.generation import Prompt, TextPrompt
from memra.messages.texts import DetokenizeRequest, TextTokenized, TokenizeRequest
from memra.types import ModelName, RequestId


class TokenizeBody(ChatRequest, kw_only=True):
    """The whole body: one of `prompt`, `content` (the same) and `messages`."""

    messages: list[Message] = msgspec.field(default_factory=list)
    prompt: str | None = None
    content: str | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


class DetokenizeBody(msgspec.Struct):
    """The whole body."""

    model: str
    tokens: list[int]


TOKENIZE_DECODER = msgspec.json.Decoder(TokenizeBody)
DETOKENIZE_DECODER = msgspec.json.Decoder(DetokenizeBody)


def read_tokenize_request(body: TokenizeBody, *, request_id: RequestId, caller: Caller) -> TokenizeRequest:
    """Check a body and say what it asks for.

    Raises:
        InvalidRequestError: a field is malformed or not supported, or there is not exactly one prompt; names it.
    """
    if body.with_pieces:
        refuse_unsupported("with_pieces", "ask /v1/detokenize for the text of a token")
    adds = body.add_special_tokens if body.add_special is None else body.add_special
    return TokenizeRequest(
        request_id=request_id,
        model=ModelName(body.model),
        prompt=_prompt(body, request_id=request_id, caller=caller),
        add_special=bool(adds),
        parse_special=body.parse_special is not False,
    )


def read_detokenize_request(body: DetokenizeBody, *, request_id: RequestId) -> DetokenizeRequest:
    """Check a body and say what it asks for.

    Raises:
        InvalidRequestError: a token id is out of range.
    """
    return DetokenizeRequest(request_id, ModelName(body.model), read_token_ids("tokens", body.tokens))


def tokenize_answer(tokenized: TextTokenized) -> bytes:
    """Return the JSON body."""
    return msgspec.json.encode(
        {
            "tokens": tokenized.token_ids,
            "count": len(tokenized.token_ids),
            "max_model_len": tokenized.context_tokens,
        }
    )


def detokenize_answer(text: str) -> bytes:
    """Return the JSON body; the text under the names that vLLM's, llama.cpp's and older clients look for."""
    answer: dict[str, Any] = {"prompt": text, "content": text, "text": text}
    return msgspec.json.encode(answer)


def _prompt(body: TokenizeBody, *, request_id: RequestId, caller: Caller) -> Prompt:
    texts = [text for text in (body.prompt, body.content) if text is not None]
    if len(texts) + bool(body.messages) != 1:
        raise InvalidRequestError("Send one of `prompt`, `content` and `messages`.", param="prompt")
    if texts:
        return TextPrompt(texts[0])
    return read_chat_request(replace(body, add_special_tokens=None), request_id=request_id, caller=caller).prompt
