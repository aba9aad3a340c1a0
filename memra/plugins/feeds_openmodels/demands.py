"""What a feed demands: declared values by their place in the metadata file, and a list of those that are missing.

Trade: all complaints about a feed at once, each by the model and the key. Refuses to know what the values are for.
"""

from collections.abc import Mapping
from typing import Any

from memra.plugins.feeds import FeedUnavailableError


class Demands:
    """Complaints about one feed."""

    def __init__(self) -> None:
        """Begin without any."""
        self._complaints: list[str] = []

    def complain(self, complaint: str) -> None:
        """Note something."""
        self._complaints.append(complaint)

    def take(self, place: str, table: Mapping[str, Any], key: str) -> Any:
        """Return a value, dots leading into tables; None, and a complaint, where it is not declared.

        Args:
            place: names the table, for the complaint.
            table: of the metadata file.
            key: such as `pricing.prompt`.
        """
        value: Any = table
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            self.complain(f"{place} does not declare {key}")
        return value

    def raise_all(self) -> None:
        """Tell them all.

        Raises:
            FeedUnavailableError: there are some.
        """
        if self._complaints:
            raise FeedUnavailableError(f"{'; '.join(self._complaints)}.")
