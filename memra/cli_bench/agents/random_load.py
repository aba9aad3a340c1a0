"""Random requests that meet each other everywhere: two models, all lanes, salts, common beginnings, clients that leave.

The same seed makes the same requests, so that each can be asked again alone. Refuses to know servers. Called by the
soak and by the tests of exactness.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from memra.cli_bench.agents.chat_stream import STAY, Leaving
from memra.cli_bench.agents.session_text import SessionText

_LANES = ("interactive", "interactive", "judge", "harvest")
_NUM_BEGINNINGS = 5


@dataclass(frozen=True, slots=True)
class LoadMix:
    """What is drawn from.

    Attributes:
        models: that the server serves.
        lanes: drawn alike; a name twice is twice as likely.
        salts: of the cache; None for no salt.
        beginning_tokens, own_tokens, answer_tokens: least and most.
        leaving_share: of clients that leave early, at a random event or moment.
        longest_stay_s: of those that leave at any moment.
        sampled_share: of requests with a temperature and a seed; the others are greedy.
    """

    models: Sequence[str]
    lanes: Sequence[str] = _LANES
    salts: Sequence[str | None] = (None, None, "red", "blue")
    beginning_tokens: tuple[int, int] = (40, 500)
    own_tokens: tuple[int, int] = (4, 120)
    answer_tokens: tuple[int, int] = (1, 48)
    leaving_share: float = 0.2
    longest_stay_s: float = 2.0
    sampled_share: float = 0.5


@dataclass(frozen=True, slots=True)
class RandomRequest:
    """One request and how its client behaves.

    Attributes:
        options: fields of the body beside the prompt and the salt: what makes the answer.
        salt: of the cache: must not change the answer.
    """

    number: int
    model: str
    lane: str
    beginning: str
    own: str
    options: Mapping[str, Any]
    salt: str | None = None
    leaving: Leaving = field(default=STAY)

    @property
    def headers(self) -> Mapping[str, str]:
        """Beside those of the endpoint."""
        return {"x-lane": self.lane}

    def chat_body(self) -> Mapping[str, Any]:
        """Of `/chat/completions`."""
        messages = [{"role": "system", "content": self.beginning}, {"role": "user", "content": self.own}]
        return {"model": self.model, "messages": messages, **self._salted()}

    def completion_body(self) -> Mapping[str, Any]:
        """Of `/completions`."""
        return {"model": self.model, "prompt": self.beginning + "\n" + self.own, **self._salted()}

    def _salted(self) -> Mapping[str, Any]:
        return self.options if self.salt is None else {**self.options, "cache_salt": self.salt}


class RandomLoad:
    """Draws one request after the other; not for several threads at once."""

    def __init__(self, mix: LoadMix, *, seed: str) -> None:
        """Begin a sequence of requests."""
        self._mix = mix
        self._random = Random(seed)  # noqa: S311  (requests to compute with, nothing secret)
        self._text = SessionText(f"{seed} texts")
        self._beginnings = [
            self._text.code(self._random.randint(*mix.beginning_tokens)) for _ in range(_NUM_BEGINNINGS)
        ]
        self._num_drawn = 0

    def draw(self) -> RandomRequest:
        """The next one."""
        draw, mix = self._random, self._mix
        options: dict[str, Any] = {"max_tokens": draw.randint(*mix.answer_tokens), "temperature": 0}
        if draw.random() < mix.sampled_share:
            options |= {"temperature": round(draw.uniform(0.3, 1.2), 2), "top_p": 0.95, "seed": draw.randrange(1 << 30)}
        beginning = draw.choice(self._beginnings)
        if draw.random() < 0.3:  # noqa: PLR2004  (some leave a beginning in its middle)
            beginning = beginning[: draw.randint(1, len(beginning))]
        self._num_drawn += 1
        return RandomRequest(
            number=self._num_drawn,
            model=draw.choice(mix.models),
            lane=draw.choice(mix.lanes),
            beginning=beginning,
            own=self._text.prose(draw.randint(*mix.own_tokens)),
            options=options,
            salt=draw.choice(mix.salts),
            leaving=self._draw_leaving(),
        )

    def _draw_leaving(self) -> Leaving:
        draw, mix = self._random, self._mix
        if draw.random() >= mix.leaving_share:
            return STAY
        if draw.random() < 0.5:  # noqa: PLR2004  (half of them in mid-answer, half at any moment)
            return Leaving(after_events=draw.randint(1, max(mix.answer_tokens[1] // 2, 1)))
        return Leaving(after_s=draw.uniform(0.001, mix.longest_stay_s))
