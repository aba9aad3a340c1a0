"""Which cached prefixes go into a hand-off file, and in which order.

Trade: the newest under a cap, each with everything that it follows on, written so that a reader that inserts one after
the other, and counts an insertion as a use of the whole prefix, has the same order of age in the end. Refuses to know
trees, bytes and files.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that could be handed on.

    Attributes:
        parent: place of the entry that it follows on among the candidates; None for the first page of a sequence.
        last_used: when, by any clock; only the order counts.
        num_bytes: of its page and states.
    """

    parent: int | None
    last_used: float
    num_bytes: int


@dataclass(frozen=True, slots=True)
class ExportOrder:
    """What is written.

    Attributes:
        places: of the chosen candidates, oldest first, but parents before their children.
        num_skipped: candidates that do not fit.
    """

    places: tuple[int, ...]
    num_skipped: int


def order_for_export(candidates: Sequence[Candidate], *, cap_bytes: int | None) -> ExportOrder:
    """Choose among candidates.

    Args:
        candidates: in any order; parents may stand after their children.
        cap_bytes: the most that the chosen may have together; None: no cap.
    """
    newest_first = sorted(range(len(candidates)), key=lambda place: -candidates[place].last_used)
    chosen: set[int] = set()
    skipped: set[int | None] = set()
    left = float("inf") if cap_bytes is None else cap_bytes
    for place in newest_first:  # a parent is used with its children, so it comes before them
        wanted = [] if candidates[place].parent in skipped else _missing_ancestry(candidates, place, chosen)
        num_bytes = sum(candidates[one].num_bytes for one in wanted)
        if num_bytes <= left and (wanted or place in chosen):
            left -= num_bytes
            chosen.update(wanted)
        else:
            skipped.add(place)
    written: dict[int, None] = {}
    for place in reversed(newest_first):
        if place in chosen:
            written |= dict.fromkeys(reversed(_missing_ancestry(candidates, place, written.keys())))
    return ExportOrder(tuple(written), len(candidates) - len(chosen))


def _missing_ancestry(candidates: Sequence[Candidate], place: int | None, there: Container[int]) -> list[int]:
    """An entry and what it follows on, upwards, as far as that is not there yet."""
    missing = []
    while place is not None and place not in there:
        missing.append(place)
        place = candidates[place].parent
    return missing
