"""Stretches of an answer's text, and the search for markers that are not complete yet.

Knows strings only; refuses to know which markers there are. Called by whatever splits an answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of an answer.

    Attributes:
        is_thought: the model wrote it for itself; otherwise it is text, or holds tool calls.
    """

    text: str
    is_thought: bool = False


def may_begin_at(text: str, markers: Sequence[str]) -> int:
    """Return where the longest end of a text begins that may still become one of the markers; its length if none may.

    A marker that stands in the text complete is none that may still come.
    """
    longest = max(map(len, markers), default=0)
    for start in range(max(0, len(text) - longest + 1), len(text)):
        end = text[start:]
        if any(marker.startswith(end) for marker in markers):
            return start
    return len(text)
