"""What each model may do in one tick, so that no decoding sequence waits long and nobody waits for ever.

While an interactive sequence decodes anywhere, a tick holds one optional thing beside it: a prompt chunk of one model,
or a step of a model where only judge and harvest sequences run. Which one is decided by stride scheduling: interactive
prompts weigh more, and everything gets its turn. Otherwise every model does all that it can, with prompt chunks bounded
by time while anybody decodes. Pure policy: it sees flags and returns shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

Key = TypeVar("Key")


class Option(IntEnum):
    """What a tick may hold one of."""

    PREFILL = 0
    DARK_DECODE = 1
    DARK_PREFILL = 2


_STRIDES: Mapping[Option, int] = {Option.PREFILL: 1, Option.DARK_DECODE: 3, Option.DARK_PREFILL: 4}
"""How far a turn moves its taker back: interactive prompts get three turns for one dark step."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one model could do now.

    Attributes:
        decodes: an interactive sequence decodes.
        decodes_dark: a judge or harvest sequence decodes.
        prefills: an interactive prompt waits to be computed.
        prefills_dark: a judge or harvest prompt does.
    """

    decodes: bool = False
    decodes_dark: bool = False
    prefills: bool = False
    prefills_dark: bool = False

    @property
    def options(self) -> tuple[Option, ...]:
        """The optional things; dark rows beside interactive ones of their own model cost little and are none."""
        flags = {
            Option.PREFILL: self.prefills,
            Option.DARK_DECODE: self.decodes_dark and not self.decodes,
            Option.DARK_PREFILL: self.prefills_dark and not self.prefills,
        }
        return tuple(option for option, is_wanted in flags.items() if is_wanted)


@dataclass(frozen=True, slots=True)
class Share:
    """What one model does in this tick.

    Attributes:
        decodes: its decoding sequences move on.
        prefills: interactive prompts are computed.
        prefills_dark: judge and harvest prompts are.
        is_bounded: prompts get no more than the step's time allows, for somebody decodes.
    """

    decodes: bool
    prefills: bool
    prefills_dark: bool
    is_bounded: bool


class TickPlan:
    """Remembers whose turn it is."""

    def __init__(self) -> None:
        self._passes: dict[tuple[object, Option], int] = {}

    def plan(self, demands: Mapping[Key, Demand]) -> dict[Key, Share]:
        """Return every model's share of the next tick."""
        if not any(demand.decodes for demand in demands.values()):
            is_bounded = any(demand.decodes_dark for demand in demands.values())
            return {
                key: Share(decodes=True, prefills=True, prefills_dark=True, is_bounded=is_bounded) for key in demands
            }
        chosen = self._choose([(key, option) for key, demand in demands.items() for option in demand.options])
        return {
            key: Share(
                decodes=demand.decodes or chosen == (key, Option.DARK_DECODE),
                prefills=chosen == (key, Option.PREFILL),
                prefills_dark=chosen == (key, Option.DARK_PREFILL),
                is_bounded=True,
            )
            for key, demand in demands.items()
        }

    def _choose(self, wanted: list[tuple[Key, Option]]) -> tuple[Key, Option] | None:
        """Return who comes next: the least pass; who was not waiting before joins at the least pass there is."""
        if not wanted:
            self._passes.clear()
            return None
        known = {candidate: self._passes[candidate] for candidate in wanted if candidate in self._passes}
        start = min(known.values(), default=0)
        passes: dict[tuple[object, Option], int] = {candidate: known.get(candidate, start) for candidate in wanted}
        chosen = min(wanted, key=lambda candidate: passes[candidate])
        passes[chosen] += _STRIDES[chosen[1]]
        self._passes = passes
        return chosen
