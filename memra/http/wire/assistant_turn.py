"""One earlier turn of the assistant, put together again from the parts that it was split into.

Refuses to know in which shape the parts came. Called by `responses_input` and `messages_input`.
"""

from typing import Any


class AssistantTurn:
    """Collects the parts of a turn until it ends.

    Attributes:
        thoughts: what the model thought.
        texts: what it said, around its calls.
    """

    def __init__(self) -> None:
        """Begin a turn."""
        self.thoughts: list[str] = []
        self.texts: list[str] = []
        self._calls: list[dict[str, Any]] = []

    def add_call(self, call_id: str, name: str, arguments: str | dict[str, Any] | None) -> None:
        """Add a call of a tool; arguments are a JSON object, as text or as it is."""
        function = {"name": name, "arguments": arguments}
        self._calls.append({"id": call_id, "type": "function", "function": function})

    def end(self) -> list[dict[str, Any]]:
        """Return the turn as one OpenAI-shaped message, or nothing where there was none, and begin the next."""
        if not (self.thoughts or self.texts or self._calls):
            return []
        message: dict[str, Any] = {"role": "assistant", "content": "\n".join(self.texts) if self.texts else None}
        if self.thoughts:
            message["reasoning_content"] = "\n".join(self.thoughts)
        if self._calls:
            message["tool_calls"] = self._calls
        self.thoughts, self.texts, self._calls = [], [], []
        return [message]
