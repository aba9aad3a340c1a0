"""How long the check of a key takes, by how much of a real key the presented one begins with.

A measurement and not a test: run `python tests/gate/key_timing.py`. The kinds are asked in turns and in an order that
changes, so that a busy machine is busy for all of them; a kind that a client could tell from the others would show as a
median apart by more than the medians of one and the same kind, measured twice, differ.
"""

import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping

from memra.errors import AuthenticationError
from memra.gate.key_entry import make_key
from memra.gate.keyring import Keyring
from memra.gate.keys import KeyLaw

ROUNDS = 20_000


def measure(rounds: int = ROUNDS, *, num_keys: int = 1000) -> Mapping[str, Mapping[str, float]]:
    """Return the median time of a refusal in nanoseconds, by who is asked and by what is presented."""
    made = [make_key("acme") for _ in range(num_keys)]
    key = made[num_keys // 2].text
    asked = {
        f"keyring of {num_keys}": KeyLaw(None).identify,
        "single key": KeyLaw(key).identify,
    }
    rings = (Keyring(one.entry for one in made), None)
    return {
        name: _medians(lambda presented, identify=identify, ring=ring: identify(presented, ring), key, rounds)
        for (name, identify), ring in zip(asked.items(), rings, strict=True)
    }


def _kinds(key: str) -> Mapping[str, str]:
    """Return how wrong keys begin, by how many characters of the right one that is; all are as long as it."""
    kinds = {f"first {num} right": key[:num] for num in (0, len(key) // 4, len(key) // 2, len(key) - 10)}
    return {**kinds, "first 0 right, again": ""}


def _medians(ask: Callable[[str], object], key: str, rounds: int) -> Mapping[str, float]:
    kinds = _kinds(key)
    taken: dict[str, list[int]] = {name: [] for name in kinds}
    order, draw = list(kinds), random.Random(1)  # noqa: S311  (an order and tails, not secrets)
    for _ in range(rounds):
        draw.shuffle(order)
        for name in order:
            # Another end each time: the time must be the beginning's, not that of one digest's place in a table.
            presented = kinds[name] + "".join(draw.choices("ghij", k=len(key)))[len(kinds[name]) :]
            start = time.perf_counter_ns()
            try:
                ask(presented)
            except AuthenticationError:
                taken[name].append(time.perf_counter_ns() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


if __name__ == "__main__":
    for who, medians in measure().items():
        for kind, nanoseconds in medians.items():
            sys.stdout.write(f"{who:16}  {kind:22}  {nanoseconds:8.0f} ns\n")
