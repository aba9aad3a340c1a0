"""What a request pays for: its items, and what the receipt of each was told.

Refuses to know when anything is told; `account` does.
"""

from dataclasses import dataclass

from memra.messages.generation import Usage
from memra.plugins import Receipt
from memra.plugins.metering_calls import MeteringCalls


@dataclass(frozen=True, slots=True)
class Item:
    """What is paid for by itself.

    Attributes:
        prompt_tokens: of its prompts, as rendered.
        completion_bound: tokens that may be generated for it, at most.
        context_tokens: of prompts and answers at their longest.
        index: among the request's items; None of one that is the whole request.
    """

    prompt_tokens: int
    completion_bound: int
    context_tokens: int
    index: int | None = None


@dataclass(slots=True)
class Line:
    """An item's receipt, and what it was told."""

    item: Item
    receipt: Receipt
    is_ended: bool = False
    prompt: tuple[int, int] | None = None
    num_generated: int = 0


def record_into(calls: MeteringCalls, line: Line, usage: Usage) -> None:
    """Tell a receipt what is new since the last time."""
    prompt = (usage.prompt_tokens, usage.cached_tokens)
    if prompt != line.prompt:
        line.prompt = prompt
        calls.record_prompt_usage(line.receipt, *prompt)
    if usage.completion_tokens > line.num_generated:
        calls.record_completion_tokens(line.receipt, usage.completion_tokens - line.num_generated)
        line.num_generated = usage.completion_tokens
