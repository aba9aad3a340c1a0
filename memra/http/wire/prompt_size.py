"""How much text a prompt may hold before anybody renders it or takes it apart.

Rendering and tokenizing take time by the byte, in a thread that all prompts share; no context is anywhere near the
limit. Refuses to know templates and tokenizers. Called where a prompt leaves the front door.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from memra.errors import ContextLengthError
from memra.messages.generation import ChatPrompt, Prompt, TextPrompt

MAX_PROMPT_BYTES = 8 << 20
"""Of all prompts of a request: two million tokens of English, and more than any context served."""

TOKEN_ID_BYTES = 4
"""What a token id counts for; English has about as many bytes a token."""


def check_prompt_size(prompts: Iterable[Prompt]) -> None:
    """Refuse a request whose prompts hold too much.

    Raises:
        ContextLengthError: more than `MAX_PROMPT_BYTES`.
    """
    sized = [(prompt, _size_of(prompt)) for prompt in prompts]
    num_bytes = sum(size for _, size in sized)
    if num_bytes > MAX_PROMPT_BYTES:
        largest = max(sized, key=lambda entry: entry[1])[0]
        raise ContextLengthError(
            f"The prompt holds {num_bytes} bytes of text, and {MAX_PROMPT_BYTES} are the limit; shorten it.",
            param=largest.param,
        )


def _size_of(prompt: Prompt) -> int:
    if isinstance(prompt, ChatPrompt):
        return _text_bytes([*prompt.messages, *(prompt.tools or ()), prompt.template_options])
    if isinstance(prompt, TextPrompt):
        return _text_bytes([prompt.text])
    return TOKEN_ID_BYTES * len(prompt.token_ids)


def _text_bytes(values: list[Any]) -> int:
    """Return the UTF-8 length of every text within, names of fields included; `values` is used up."""
    num_bytes = 0
    while values:
        value = values.pop()
        if isinstance(value, str):
            num_bytes += len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
        elif isinstance(value, Mapping):
            values += value.keys()
            values += value.values()
        elif isinstance(value, list | tuple):
            values += value
    return num_bytes
