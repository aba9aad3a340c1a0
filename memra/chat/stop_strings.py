"""Text that ends before the earliest stop string, however it is cut into pieces.

Knows strings only; refuses to know tokens. Called by `answer_reader`.

Earliest means the smallest start: of all places in the whole text where some stop string stands, the one that begins
first. A long stop string that begins before a short one and is complete only after it therefore wins, and while it may
still become complete the end of the text is not decided. So the result is the same for every way to cut a text.
"""

from collections.abc import Sequence

from memra.errors import InvalidRequestError

MAX_STOP_STRINGS = 16
"""More than any client of the OpenAI interface sends; the cost of a search grows with their number."""


class StopStrings:
    """One growing text and the strings that end it; owned by one task.

    Held back is the shortest end of the text that could still turn out to be, or to hold, a stop string.

    Attributes:
        is_on: while it is false, text passes as it is, and no stop string begins in it; for the beginning of a text.
    """

    def __init__(self, stops: Sequence[str], *, is_shown: bool = False) -> None:
        """Begin a text.

        Args:
            stops: what ends it.
            is_shown: the text ends behind the stop string that is found, instead of before it.

        Raises:
            InvalidRequestError: there are too many stop strings, or an empty one, which would end every text at once.
        """
        if len(stops) > MAX_STOP_STRINGS:
            raise InvalidRequestError(f"at most {MAX_STOP_STRINGS} stop strings are allowed: send fewer", param="stop")
        if not all(stops):
            raise InvalidRequestError("a stop string is empty: leave it out", param="stop")
        self._stops = tuple(stops)
        self.is_on = True
        self._is_shown = is_shown
        self._first_chars = frozenset(stop[0] for stop in stops)
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self._hidden = ""
        self._found: str | None = None

    @property
    def found(self) -> str | None:
        """The stop string that ended the text: of several that begin at one place the shortest, or None."""
        return self._found

    @property
    def num_held_bytes(self) -> int:
        """What is held back, or hidden for good as a stop string and what came with its end, as UTF-8."""
        return len((self._held or self._hidden).encode())

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string was found and nothing that comes could begin before it."""
        return self._found is not None

    def push(self, text: str) -> str:
        """Take more text and return what is certain now: it is before every stop string."""
        if self._found is not None:
            return ""
        if not self.is_on:
            return text
        text = self._held + text
        self._held = ""
        if self._first_chars.isdisjoint(text):
            return text
        for start, char in enumerate(text):
            if char not in self._first_chars:
                continue
            found = [stop for stop in self._stops if text.startswith(stop, start)]
            if found:
                return self._end(text, start, min(found, key=len))
            if len(text) - start < self._longest and self._may_begin(text[start:]):
                self._held = text[start:]
                return text[:start]
        return text

    def flush(self) -> str:
        """End the text: what is held back is decided without what might have come."""
        text, self._held = self._held, ""
        found = [(start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if not found:
            return text
        return self._end(text, *min(found, key=lambda place: (place[0], len(place[1]))))

    def _end(self, text: str, start: int, stop: str) -> str:
        self._found = stop
        end = start + len(stop) if self._is_shown else start
        self._hidden = text[end:]
        return text[:end]

    def _may_begin(self, end: str) -> bool:
        return any(stop.startswith(end) for stop in self._stops)
