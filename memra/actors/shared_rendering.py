"""What several answers to one prompt have in common: the rendered prompt, made once, with a reader for each of them.

Refuses to know how a prompt is rendered. Made by `choices`, one for each prompt of a request; used by its walks, one
after the other.
"""

from dataclasses import replace

from memra.messages.prompt import AnswerReader, PromptRendered


class SharedRendering:
    """One prompt as its first answer had it rendered."""

    def __init__(self, num_answers: int) -> None:
        """Begin with nothing rendered."""
        self._num_open = num_answers
        self._instance = 0
        self._rendered: PromptRendered | None = None
        self._readers: list[AnswerReader] = []

    @property
    def num_open(self) -> int:
        """Answers that have nothing yet."""
        return self._num_open

    def keep(self, rendered: PromptRendered, instance: int) -> PromptRendered:
        """Keep what was rendered for all answers that have nothing yet, and return it for the first of them."""
        self._rendered, self._instance = replace(rendered, further_readers=()), instance
        self._readers = list(rendered.further_readers)
        self._num_open -= 1
        return self._rendered

    def take(self, instance: int) -> PromptRendered | None:
        """Return the prompt with a fresh reader; None where it was not rendered yet, or for another instance."""
        if self._rendered is None or instance != self._instance or not self._readers:
            return None
        self._num_open -= 1
        return replace(self._rendered, reader=self._readers.pop(0))
