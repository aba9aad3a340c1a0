"""An agent's session at the engine: what is recomputed is what is new after the branching point, and no answer differs.

History grows, is stripped of the thinking, regenerated, edited and interrupted, and another agent comes in between. Run
on real models of a plain and of a sliding-window family, and on a small hybrid with recurrent layers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memra_kernels import native

from memra.engine.engine import Engine, EngineLimits
from memra.engine.executor import Executor
from memra.engine.loaded_model import LoadedModel
from memra.engine.native_sampler import NativeTokenSampler
from memra.messages.sampling import SamplingParams
from memra.messages.work import PromptStarted, SubmitPrompt, TokensGenerated
from tests.engine.agent_models import open_gguf_model, open_hybrid

Make = Callable[..., Any]

NUM_PAGES, NUM_STATES, CONTEXT_TOKENS = 160, 240, 4096
END = 3
"""Ends turns."""
OPENING = [5, 6, 7]
"""Opens the assistant's turn."""


@pytest.fixture(autouse=True)
def _library() -> None:
    try:
        native.library()
    except native.NativeUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(
    params=[
        "hybrid",
        pytest.param("smollm2_path", marks=[pytest.mark.models, pytest.mark.slow]),
        pytest.param("gemma_path", marks=[pytest.mark.models, pytest.mark.slow]),
    ]
)
def executor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Executor]:
    if request.param == "hybrid":
        opened = open_hybrid(tmp_path, num_pages=NUM_PAGES, num_states=NUM_STATES)
    else:
        opened = open_gguf_model(request.getfixturevalue(request.param), num_pages=NUM_PAGES)
    yield opened
    opened.close()


class Server:
    """One engine on the executor; the same requests go to a remembering and to a forgetful one."""

    def __init__(self, executor: Executor, *, cache_bytes: int) -> None:
        self.engine = Engine(limits=EngineLimits(prefix_cache_bytes=cache_bytes))
        model = LoadedModel(
            "m",  # type: ignore[arg-type]
            executor,
            context_tokens=CONTEXT_TOKENS,
            prefill_chunk_tokens=200,
            make_sampler=NativeTokenSampler,
        )
        self.engine.add_model(model)
        self.num_computed = 0

    def answer(self, turn: "Turn", name: str) -> list[int]:
        self.engine.submit(
            SubmitPrompt(
                name,  # type: ignore[arg-type]
                "m",  # type: ignore[arg-type]
                tuple(turn.prompt),
                turn.num_new,
                SamplingParams(temperature=turn.temperature, seed=7),
                eos_ids=frozenset({END}),
            )
        )
        token_ids: list[int] = []
        while self.engine.has_work:
            for event in self.engine.step().events:
                if isinstance(event, PromptStarted):
                    self.num_computed += len(turn.prompt) - event.num_cached_tokens
                elif isinstance(event, TokensGenerated):
                    token_ids += event.token_ids
            if turn.cut_after is not None and len(token_ids) >= turn.cut_after:
                self.engine.abort(name)  # type: ignore[arg-type]
        self.engine.check_integrity()
        return token_ids


@dataclass
class Turn:
    """One request of a session."""

    prompt: list[int]
    num_new: int = 24
    temperature: float = 0.0
    cut_after: int | None = None


@dataclass
class Session:
    """Plays the turns, and counts what is new after the branching point by itself."""

    warm: Server
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))
    turns: list[tuple[Turn, list[int]]] = field(default_factory=list)
    num_new: int = 0
    seen: list[list[int]] = field(default_factory=list)

    def words(self, num: int) -> list[int]:
        return [int(token) for token in self.random.integers(10, 500, num)] + [END]

    def play(self, turn: Turn) -> list[int]:
        known = max((_count_shared(turn.prompt, seen) for seen in self.seen), default=0)
        self.num_new += len(turn.prompt) - min(known, len(turn.prompt) - 1)
        answer = self.warm.answer(turn, f"turn {len(self.turns)}")
        self.turns.append((turn, answer))
        self.seen.append(turn.prompt + answer[:-1])
        return answer


def _count_shared(first: list[int], second: list[int]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


def _play_session(session: Session) -> None:
    system, other_system = session.words(400), session.words(300)
    history, other = list(system), list(other_system)
    for number in range(10):
        history += session.words(int(session.random.integers(60, 250))) + OPENING
        answer = session.play(Turn([*history], temperature=0.8 if number % 2 else 0.0))
        if number == 3:
            answer = session.play(Turn([*history], temperature=1.1))  # regenerated
        if number == 5:
            session.play(Turn([*history], num_new=60, cut_after=20))  # interrupted
        # The first half was thinking, which the client does not send again; except twice.
        kept = answer if number in {2, 6} else answer[len(answer) // 2 :]
        history = [*history, *kept, END]
        if number == 7:
            edited = history[: -len(kept) - 40] + session.words(30) + OPENING
            session.play(Turn(edited))
        if number % 3 == 0:
            other += session.words(80) + OPENING
            other += [*session.play(Turn([*other])), END]


def test_a_session_computes_what_is_new_and_answers_as_a_cold_server(executor: Executor):
    session = Session(Server(executor, cache_bytes=1 << 30))
    _play_session(session)
    ratio = session.warm.num_computed / session.num_new
    assert 0.99 <= ratio <= 1.15
    total = sum(len(turn.prompt) for turn, _ in session.turns)
    assert session.num_new < total / 3
    session.warm.engine.remove_model("m")  # type: ignore[arg-type]
    cold = Server(executor, cache_bytes=0)
    for number, (turn, answer) in enumerate(session.turns):
        again = cold.answer(turn, f"cold {number}")
        assert again[: len(answer)] == answer[: len(again)]
        assert again == answer or turn.cut_after is not None
