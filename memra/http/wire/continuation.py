"""Answers that go on with the assistant's last message: vLLM's `continue_final_message`, others' `prefix`.

The answer is what follows; what was begun is not repeated, unless `echo` asks for it. Refuses to know templates and
bodies. Called by `chat_request`.
"""

from collections.abc import Sequence
from typing import NoReturn, Protocol

from memra.errors import InvalidRequestError


class Turn(Protocol):
    """What matters of a message here."""

    @property
    def role(self) -> str:
        """Who speaks."""
        ...

    @property
    def tool_calls(self) -> Sequence[object] | None:
        """What it calls."""
        ...

    @property
    def prefix(self) -> bool | None:
        """Whether it is marked as the beginning of the answer."""
        ...


def read_continuation(
    turns: Sequence[Turn], *, is_asked: bool | None, adds_prompt: bool | None, bound_by: str | None
) -> bool:
    """Return whether the answer goes on with the last message.

    Args:
        turns: at least one.
        is_asked: `continue_final_message`.
        adds_prompt: `add_generation_prompt`.
        bound_by: the field that binds the whole answer to a shape, or None.

    Raises:
        InvalidRequestError: the last message cannot be gone on with, or another one is marked as its beginning.
    """
    *earlier, last = turns
    for index, turn in enumerate(earlier):
        if turn.prefix:
            _refuse(f"`messages[{index}].prefix` is only allowed on the last message.", "messages")
    if not (is_asked or last.prefix):
        return False
    param = "continue_final_message" if is_asked else "messages"
    if last.role != "assistant":
        _refuse("The last message must be the assistant's for the answer to go on with it.", param)
    if last.tool_calls:
        _refuse("The answer cannot go on with a message that calls tools; send their results.", param)
    if adds_prompt:
        _refuse("`add_generation_prompt` begins a new message; leave it out, or do not go on with the last one.", param)
    if bound_by is not None:
        _refuse(f"`{bound_by}` binds the whole answer, so it must begin afresh: leave out the message.", bound_by)
    return True


def _refuse(text: str, param: str) -> NoReturn:
    raise InvalidRequestError(text, param=param)
