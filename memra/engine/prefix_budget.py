"""The bytes that all models' prefixes may take together, and the clock by which they are compared.

One budget for the whole engine: the model whose prefix was used longest ago gives way, whichever it is.
"""

from typing import Protocol


class Evictable(Protocol):
    """One model's prefixes, as the budget sees them."""

    def oldest_use(self) -> int | None:
        """The last use of what would be evicted next; None when nothing can be."""
        ...

    def evict_oldest(self) -> bool:
        """Give up what was used longest ago; false when nothing could be."""
        ...


class PrefixBudget:
    """Counts bytes and ticks.

    Attributes:
        limit_bytes: 0 keeps no prefix at all.
        num_bytes: that are taken, those in use by running sequences included.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Start with nothing taken."""
        self.limit_bytes = limit_bytes
        self.num_bytes = 0
        self._now = 0
        self._members: list[Evictable] = []

    def tick(self) -> int:
        """Return a moment later than all before."""
        self._now += 1
        return self._now

    def join(self, member: Evictable) -> None:
        """Let a model's prefixes take part."""
        self._members.append(member)

    def leave(self, member: Evictable) -> None:
        """A model is gone, and has given up all its bytes."""
        self._members.remove(member)

    def shrink(self) -> None:
        """Evict, oldest first, until the bytes fit or all that is left is in use."""
        while self.num_bytes > self.limit_bytes:
            uses = [(use, index) for index, member in enumerate(self._members) if (use := member.oldest_use())]
            if not uses or not self._members[min(uses)[1]].evict_oldest():
                return
