"""What a chat request's prompt is in tokens, so that a client can say what is new in it.

Three sources: memra's own reader of a model file, a llama-server's `/apply-template` and `/tokenize`, and a bare
`/tokenize` or `/extras/tokenize`, for which the messages are written in a form of our own: close, and said to be no
more than that. Refuses to know what was computed. Called by the replay.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from memra.chat.chat_format import ChatFormat
from memra.cli_bench.agents.chat_stream import OK, Endpoint
from memra.errors import MeasurementError
from memra.loading.model_path import open_checkpoint
from memra.messages.generation import ChatPrompt
from memra.messages.prompt import RenderPrompt
from memra.types import ModelName, RequestId

_ROLES = {"developer": "system"}
_ANY_CONTEXT = 1 << 30
"""Counting refuses no length; the server does."""


class PromptTokens(Protocol):
    """Counts for one model.

    Attributes:
        is_exact: whether these are the tokens that the server computes.
    """

    is_exact: bool

    def of_chat(self, body: Mapping[str, Any]) -> Sequence[int]:
        """Tokens of a chat request's prompt; raises `MemraError` where there are none."""
        ...

    def of_text(self, text: str) -> Sequence[int]:
        """Tokens of an answer's text."""
        ...


class FileTokens:
    """A model file's own tokenizer and template, as `memra run` would use them."""

    is_exact = True

    def __init__(self, path: Path) -> None:
        """Read the file's vocabulary.

        Raises:
            StartupError: it is no model, or one that memra cannot read.
        """
        checkpoint = open_checkpoint(path)
        try:
            self._format = ChatFormat.build(checkpoint.vocabulary, context_tokens=_ANY_CONTEXT)
        finally:
            checkpoint.close()

    def of_chat(self, body: Mapping[str, Any]) -> Sequence[int]:
        """See `PromptTokens`."""
        messages = [{**message, "role": _ROLES.get(message["role"], message["role"])} for message in body["messages"]]
        prompt = ChatPrompt(messages, body.get("tools"), body.get("chat_template_kwargs") or {})
        return self._format.render(RenderPrompt(RequestId("replay"), ModelName("replay"), prompt)).prompt_ids

    def of_text(self, text: str) -> Sequence[int]:
        """See `PromptTokens`."""
        return self._format.tokenizer.encode(text, add_special=False, parse_special=False)


class ServerTokens:
    """A server that tokenizes on request."""

    def __init__(self, endpoint: Endpoint, *, path: str, field: str, has_template: bool) -> None:
        """Use what `find_server_tokens` found.

        Args:
            endpoint: the server.
            path: that tokenizes.
            field: of the body that takes the text.
            has_template: whether `/apply-template` writes the prompt.
        """
        self._endpoint = endpoint
        self._path = path
        self._field = field
        self.is_exact = has_template

    def of_chat(self, body: Mapping[str, Any]) -> Sequence[int]:
        """See `PromptTokens`."""
        if not self.is_exact:
            lines = [f"{message['role']}: {message.get('content') or ''}\n" for message in body["messages"]]
            return self.of_text(json.dumps(body.get("tools") or "") + "".join(lines))
        wanted = {name: body[name] for name in ("messages", "tools", "chat_template_kwargs") if name in body}
        status, content = self._endpoint.call("POST", "/apply-template", wanted)
        if status != OK:
            raise MeasurementError(f"/apply-template was answered with status {status}")
        return self._tokenize(str(json.loads(content)["prompt"]), is_prompt=True)

    def of_text(self, text: str) -> Sequence[int]:
        """See `PromptTokens`."""
        return self._tokenize(text, is_prompt=False)

    def _tokenize(self, text: str, *, is_prompt: bool) -> Sequence[int]:
        body = {self._field: text, "add_special": is_prompt, "parse_special": is_prompt}
        status, content = self._endpoint.call("POST", self._path, body)
        if status != OK:
            raise MeasurementError(f"{self._path} was answered with status {status}")
        return list(json.loads(content)["tokens"])


def find_server_tokens(endpoint: Endpoint) -> ServerTokens | None:
    """Try what servers are known to have; None where this one cannot tokenize."""
    probe = {"messages": [{"role": "user", "content": "x"}]}
    for path, field in (("/tokenize", "content"), ("/extras/tokenize", "input")):
        status, content = endpoint.call("POST", path, {field: "x"})
        if status == OK and b'"tokens"' in content:
            has_template = endpoint.call("POST", "/apply-template", probe)[0] == OK
            return ServerTokens(endpoint, path=path, field=field, has_template=has_template)
    return None


class SeenPrompts:
    """Token sequences that one model has read or written, and how far a new prompt follows one of them."""

    def __init__(self) -> None:
        """Begin with none."""
        self._seen: list[Sequence[int]] = []

    def add(self, token_ids: Sequence[int]) -> None:
        """Remember one."""
        self._seen.append(token_ids)

    def common_tokens(self, token_ids: Sequence[int]) -> int:
        """Length of the longest beginning that any of them shares."""
        return max((common_length(token_ids, other) for other in self._seen), default=0)


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that two sequences begin with alike; compares slices, which takes microseconds where a loop takes more."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
