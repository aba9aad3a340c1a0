"""What the benchmark is at: one line that is rewritten on a terminal, plain lines elsewhere; on stderr.

Refuses to know what is measured.
"""

import sys
from typing import TextIO

_MAX_WIDTH = 100
_CLEAR = "\r\x1b[2K"


class Progress:
    """Shows steps out of a total that may grow."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to stderr, or to `stream`."""
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._num_done = 0
        self._num_total = 0

    def expect(self, num_steps: int) -> None:
        """Say how many more steps there will be."""
        self._num_total += num_steps

    def step(self, text: str) -> None:
        """Say what begins now."""
        self._num_done += 1
        self._num_total = max(self._num_total, self._num_done)
        self._write(f"[{self._num_done}/{self._num_total}] {text}")

    def note(self, text: str) -> None:
        """Say something that is no step."""
        self._write(text)

    def finish(self) -> None:
        """Take the rewritten line away."""
        if self._is_terminal:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def _write(self, text: str) -> None:
        self._stream.write(f"{_CLEAR}{text[:_MAX_WIDTH]}" if self._is_terminal else f"{text}\n")
        self._stream.flush()
