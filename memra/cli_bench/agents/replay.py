"""Plays a transcript against a server: the turns of one agent in order, agents beside each other, answers inserted.

Says per turn what was sent, what came, and how many tokens of the prompt no earlier one begins with. Refuses to know
how figures are shown. A thread an agent; nothing is sent before everything that a turn waits for is over.
"""

import hashlib
import json
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from memra.cli_bench.agents.chat_stream import Endpoint, Leaving, StreamedAnswer, stream_chat
from memra.cli_bench.agents.prompt_tokens import PromptTokens, SeenPrompts
from memra.cli_bench.agents.transcript import Turn
from memra.errors import MemraError


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What came of one turn.

    Attributes:
        num_counted: tokens of the prompt as the client counts them; None where it cannot.
        num_new: of those, tokens behind the longest beginning that an earlier prompt or answer of the same model
            shares; at least 1, because the logits of the last token are always needed.
    """

    turn: Turn
    answer: StreamedAnswer
    num_counted: int | None = None
    num_new: int | None = None

    @property
    def num_prompt(self) -> int | None:
        """Tokens of the prompt: the server's word, else the client's count."""
        usage, timings = self.answer.usage or {}, self.answer.timings or {}
        if "prompt_tokens" in usage:
            return int(usage["prompt_tokens"])
        if "prompt_n" in timings:
            return int(timings["prompt_n"]) + int(timings.get("cache_n", 0))
        return self.num_counted

    @property
    def num_cached(self) -> int | None:
        """Tokens that the server says it did not compute again; None where it does not say."""
        details = (self.answer.usage or {}).get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens")
        cached = (self.answer.timings or {}).get("cache_n") if cached is None else cached
        return None if cached is None else int(cached)

    @property
    def num_recomputed(self) -> int | None:
        """Tokens of the prompt that the server computed."""
        if self.num_prompt is None or self.num_cached is None:
            return None
        return self.num_prompt - self.num_cached

    @property
    def first_s(self) -> float | None:
        """Seconds to the first text."""
        return self.answer.times[0] if self.answer.times else None

    @property
    def digest(self) -> str | None:
        """Of the whole answer; None where the client left or it failed."""
        if self.answer.has_left or self.answer.is_failed:
            return None
        content = json.dumps([self.answer.text, self.answer.reasoning])
        return hashlib.sha256(content.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class ReplayTarget:
    """Where a transcript is played.

    Attributes:
        names: what the server calls the transcript's models; others keep their name.
        tokens: who counts a model's prompts, by the transcript's name.
        is_cold: a salt of its own goes with every request, so that a server that knows salts reuses nothing.
    """

    endpoint: Endpoint
    names: Mapping[str, str]
    tokens: Mapping[str, PromptTokens]
    is_cold: bool = False


class Replay:
    """One run of a transcript."""

    def __init__(self, turns: Sequence[Turn], target: ReplayTarget) -> None:
        """Nothing is sent yet."""
        self._turns = turns
        self._target = target
        self._over = {turn.name: threading.Event() for turn in turns}
        self._answers: dict[str, str] = {}
        self._seen: defaultdict[str, SeenPrompts] = defaultdict(SeenPrompts)
        self._lock = threading.Lock()
        self._run = secrets.token_hex(6)

    def run(self, announce: Callable[[str], None]) -> list[TurnResult]:
        """Play everything; `announce` is told which turn is sent. Results are in the transcript's order."""
        agents: defaultdict[str, list[Turn]] = defaultdict(list)
        for turn in self._turns:
            agents[turn.agent].append(turn)
        with ThreadPoolExecutor(len(agents)) as pool:
            played = list(pool.map(lambda turns: [self._play(turn, announce) for turn in turns], agents.values()))
        results = {result.turn.name: result for results in played for result in results}
        return [results[turn.name] for turn in self._turns]

    def _play(self, turn: Turn, announce: Callable[[str], None]) -> TurnResult:
        try:
            for other in (*turn.after, *turn.answers_needed):
                self._over[other].wait()
            time.sleep(turn.pause_s)
            missing = [name for name in turn.answers_needed if name not in self._answers]
            if missing:
                return TurnResult(turn, StreamedAnswer(error=f"not sent: turn {missing[0]} has no answer"))
            announce(f"{turn.agent}, turn {turn.name}")
            return self._send(turn)
        except MemraError as error:  # the prompt cannot be counted
            return TurnResult(turn, StreamedAnswer(error=f"not sent: {error.message}"))
        finally:
            self._over[turn.name].set()

    def _send(self, turn: Turn) -> TurnResult:
        body: dict[str, Any] = {**turn.body, "messages": turn.messages(self._answers)}
        tokens = self._target.tokens.get(turn.model)
        prompt_ids = None if tokens is None else tuple(tokens.of_chat(body))
        # Where nothing may be reused, what an earlier prompt holds is as new as the rest.
        num_new = None if prompt_ids is None or self._target.is_cold else self._note_prompt(turn, prompt_ids)
        if turn.model:
            body["model"] = self._target.names.get(turn.model, turn.model)
        if self._target.is_cold:
            body["cache_salt"] = f"{self._run}.{self._turns.index(turn)}"
        leaving = Leaving(after_events=turn.cancel_after_tokens)
        answer = stream_chat(self._target.endpoint, body, leaving=leaving)
        if not answer.is_failed:
            self._answers[turn.name] = answer.text
            if tokens is not None and prompt_ids is not None:
                self._note(turn, (*prompt_ids, *tokens.of_text(answer.text)))
        return TurnResult(turn, answer, None if prompt_ids is None else len(prompt_ids), num_new)

    def _note_prompt(self, turn: Turn, prompt_ids: Sequence[int]) -> int:
        """Remember a prompt from the moment that it is sent; returns how much of it is new."""
        with self._lock:
            common = self._seen[turn.model].common_tokens(prompt_ids)
            self._seen[turn.model].add(prompt_ids)
        return max(len(prompt_ids) - common, 1)

    def _note(self, turn: Turn, token_ids: Sequence[int]) -> None:
        with self._lock:
            self._seen[turn.model].add(token_ids)


def digest_of(results: Sequence[TurnResult]) -> str:
    """One digest of all whole answers."""
    content = json.dumps([[result.turn.name, result.digest] for result in results if result.digest is not None])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def differing_turns(results: Sequence[TurnResult], expected: Mapping[str, str]) -> list[str]:
    """Names of turns whose answers are not those expected; a whole answer that is missing on one side differs."""
    found = {result.turn.name: result.digest for result in results if result.digest is not None}
    return [result.turn.name for result in results if found.get(result.turn.name) != expected.get(result.turn.name)]
