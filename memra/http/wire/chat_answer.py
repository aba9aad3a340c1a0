"""OpenAI's chat completion, whole and streamed.

Refuses to know HTTP. Thoughts come as `reasoning`, as OpenRouter and vLLM call them, and under the older name
`reasoning_content` too, since clients read one or the other; each chunk shows one kind of thing, because many clients
look for one only. What is the same in every chunk is encoded once per answer. See `memra.http.wire.answer.Answer`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.http.wire.answer import (
    DONE,
    FINISH_REASONS,
    Stamp,
    WholeChoice,
    data_line,
    encode,
    error_beside,
    openai_failure,
    usage_object,
)
from memra.http.wire.token_likelihoods import chat_logprobs
from memra.messages.generation import ReplyDelta, ReplyFinished, ToolCallDelta
from memra.types import StopCause


class ChatAnswer:
    """Writes chat completions; the first chunk of a choice that shows anything carries the role.

    Args:
        wants_usage_chunk: put the usage in a chunk of its own, and `usage: null` in all others.
        wants_logprobs: every choice has `logprobs`, also where it is empty.
        names_ids: tokens are named by their ids there.
    """

    def __init__(
        self, stamp: Stamp, *, wants_usage_chunk: bool, wants_logprobs: bool = False, names_ids: bool = False
    ) -> None:
        """Encode what never changes."""
        self._wants_usage_chunk = wants_usage_chunk
        self._wants_logprobs = wants_logprobs
        self._names_ids = names_ids
        self._began: set[int] = set()
        self._common = stamp.openai_object("chat.completion.chunk")
        self._head = b"data: " + encode(self._common)[:-1] + b',"choices":[{"index":'
        self._usage_tail = (b',"usage":null' if wants_usage_chunk else b"") + b"}\n\n"
        self._tail = b',"finish_reason":null}]' + self._usage_tail

    def whole(self, choices: Sequence[WholeChoice], finished: ReplyFinished) -> bytes:
        """Return the JSON body of complete answers."""
        common = {**self._common, "object": "chat.completion"}
        shapes = [self._whole(choice) for choice in choices]
        body = {**common, "choices": shapes, "usage": usage_object(finished.usage), **error_beside(finished)}
        return encode({**body, "memra_cache": finished.cache.value})

    def delta(self, delta: ReplyDelta) -> bytes:
        """Return the chunks for more of the answer, and that for the end of its choice; empty when there is nothing."""
        chunks = self._chunks(delta) if delta.reasoning or delta.tool_calls else self._text_chunk(delta)
        return chunks if delta.stop is None else chunks + self._end(delta.choice, delta.stop) + self._usage_tail

    def finish(self, finished: ReplyFinished) -> bytes:
        """Return the finish chunk, the usage and the end; an answer without text still delivers its role."""
        end, usage = self._end(finished.choice, finished.stop), usage_object(finished.usage)
        if not self._wants_usage_chunk:
            return end + b',"usage":' + encode(usage) + b"}\n\n" + DONE
        return end + self._usage_tail + data_line({**self._common, "choices": [], "usage": usage}) + DONE

    def failure(self, error: bytes) -> bytes:
        """Return the error and the end."""
        return openai_failure(error)

    def _whole(self, choice: WholeChoice) -> Mapping[str, Any]:
        answer = choice.answer
        shape: dict[str, Any] = {"index": answer.choice, "message": _message(answer)}
        if self._wants_logprobs:
            shape["logprobs"] = chat_logprobs(answer.logprobs, by_id=self._names_ids)
        return {**shape, "finish_reason": FINISH_REASONS[choice.stop]}

    def _end(self, choice: int, stop: StopCause) -> bytes:
        """Return the finish chunk of a choice up to its usage; one that showed nothing gets its role first."""
        role = b"" if choice in self._began else self._chunk(choice, b'"content":""')
        return role + self._head + b'%d,"delta":{},"finish_reason":"%s"}]' % (choice, FINISH_REASONS[stop].encode())

    def _chunks(self, delta: ReplyDelta) -> bytes:
        chunks = b""
        if delta.reasoning:
            thought = encode(delta.reasoning)
            chunks = self._chunk(delta.choice, b'"reasoning":' + thought + b',"reasoning_content":' + thought)
        chunks += self._text_chunk(delta)
        if delta.tool_calls:
            calls = b'"tool_calls":' + encode([_call_delta(call) for call in delta.tool_calls])
            chunks += self._chunk(delta.choice, calls if delta.choice in self._began else b'"content":null,' + calls)
        return chunks

    def _text_chunk(self, delta: ReplyDelta) -> bytes:
        """Return the chunk for text and log probabilities, which are those of thoughts and calls too."""
        if not (delta.text or delta.logprobs):
            return b""
        logprobs = b""
        if delta.logprobs:
            logprobs = b',"logprobs":' + encode(chat_logprobs(delta.logprobs, by_id=self._names_ids))
        return self._chunk(delta.choice, b'"content":' + encode(delta.text), logprobs)

    def _chunk(self, choice: int, fields: bytes, beside: bytes = b"") -> bytes:
        """Return a chunk of a choice whose delta has these fields; the first one has the role too."""
        if choice not in self._began:
            self._began.add(choice)
            fields = b'"role":"assistant",' + fields
        return b"".join((self._head, b'%d,"delta":{' % choice, fields, b"}", beside, self._tail))


def _message(answer: ReplyDelta) -> Mapping[str, Any]:
    """Return the assistant's message; its content is null where it only calls tools."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or (None if answer.tool_calls else "")}
    if answer.reasoning:
        message["reasoning"] = message["reasoning_content"] = answer.reasoning
        message["reasoning_details"] = [{"type": "reasoning.text", "text": answer.reasoning}]
    if answer.tool_calls:
        message["tool_calls"] = [_call(call) for call in answer.tool_calls]
    return message


def _call(call: ToolCallDelta) -> Mapping[str, Any]:
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _call_delta(call: ToolCallDelta) -> Mapping[str, Any]:
    """Return more of a call; what names it comes with its first delta alone, as clients add up every field."""
    if call.name is None:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    return {"index": call.index, **_call(call)}
