"""Other shapes of a chat request, read as the chat completion that they mean.

Refuses to know the shapes. All checks are those of `chat_request`; what they refuse is named as the client wrote it.
Called by `responses_request` and `messages_request`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from memra.errors import InvalidRequestError
from memra.http.request_headers import Caller
from memra.http.wire.chat_request import ChatRequest, read_chat_request
from memra.http.wire.refusal import field_of
from memra.messages.generation import ChatPrompt, GenerationRequest
from memra.types import RequestId


def read_as_chat(
    fields: Mapping[str, Any],
    *,
    names: Mapping[str, str],
    request_id: RequestId,
    caller: Caller,
) -> GenerationRequest:
    """Check a translated request and say what it asks for.

    Args:
        fields: of a chat completion; those that are None were not sent.
        names: the client's own words for fields of a chat completion, or for places in them.
        request_id: of the request.
        caller: who asks.

    Raises:
        InvalidRequestError: a field is malformed, out of range or not supported; names it as the client does.
    """
    sent = {name: value for name, value in fields.items() if value is not None}
    with _named(names):
        request = read_chat_request(msgspec.convert(sent, ChatRequest), request_id=request_id, caller=caller)
    prompt = request.prompt
    if isinstance(prompt, ChatPrompt):
        prompt = replace(prompt, param=names.get(prompt.param, prompt.param))
    grammar = request.grammar
    if grammar is not None:
        grammar = replace(grammar, param=names.get(grammar.param, grammar.param))
    # Answers are shared as text; the order of their items would be lost.
    return replace(request, prompt=prompt, grammar=grammar, may_reuse_answer=False)


@contextmanager
def _named(names: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except InvalidRequestError as error:
        param = error.param
        if param is None or param not in names:
            raise
        message = error.message
        place = next((place for place in sorted(names, key=len, reverse=True) if f"`{place}" in message), None)
        if place is not None:
            message = message.replace(f"`{place}", f"`{names[place]}", 1)
        raise InvalidRequestError(message, param=field_of(names[param])) from error
