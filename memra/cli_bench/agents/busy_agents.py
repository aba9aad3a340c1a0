"""Clients that keep a server busy for a while: interactive agents with pauses for their tools, and harvest requests.

Agents hold conversations that grow by a tool's result a turn; harvest clients ask one thing after the other in the lane
of that name and come back when they are told to. Each is a thread. Refuses to know servers' insides and what is
compared. Called by `agents_bench`.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from memra.cli_bench.agents.chat_stream import BUSY, Endpoint, Leaving, StreamedAnswer, stream_chat
from memra.cli_bench.agents.session_text import SessionText
from memra.cli_bench.agents.transcript import strip_thinking
from memra.errors import MeasurementError

HARVEST_HEADERS: Mapping[str, str] = {"x-lane": "harvest"}
_WAIT_S = 1.0
"""Before a client that was refused without a Retry-After tries again."""
_BACK_S = 0.05
"""Before a client tries again whose answer was over at once."""


@dataclass(frozen=True, slots=True)
class AgentsPlan:
    """What is asked of a server.

    Attributes:
        num_agents, agent_answer_tokens: interactive ones.
        system_tokens: of an agent's system prompt; each agent has its own.
        turn_tokens: least and most new tokens of an agent's turn.
        pause_s: least and most seconds that an agent's tool runs.
        conversation_tokens: about so long a conversation grows before the agent begins another.
        num_harvest, harvest_prompt_tokens, harvest_answer_tokens: of the harvest clients.
        warm_up_s: after the first request, not counted.
        window_s: counted.
    """

    num_agents: int = 4
    agent_answer_tokens: int = 64
    system_tokens: int = 400
    turn_tokens: tuple[int, int] = (60, 400)
    pause_s: tuple[float, float] = (0.3, 1.5)
    conversation_tokens: int = 3000
    num_harvest: int = 16
    harvest_prompt_tokens: int = 200
    harvest_answer_tokens: int = 128
    warm_up_s: float = 8.0
    window_s: float = 40.0


@dataclass(slots=True)
class Seen:
    """What clients of one kind saw inside the counted window.

    Attributes:
        gaps_s: between two events of one answer.
        firsts_s: to the first text of an answer.
        num_events: events with text; a server that writes one a token makes them tokens.
        num_refused: answers with status 429.
        failures: other answers that were none, in the server's words.
    """

    gaps_s: list[float] = field(default_factory=list)
    firsts_s: list[float] = field(default_factory=list)
    num_events: int = 0
    num_refused: int = 0
    failures: list[str] = field(default_factory=list)


class _Window:
    """One window with its clients; `Seen` is shared by their threads under the lock."""

    def __init__(self, endpoint: Endpoint, plan: AgentsPlan, seed: str) -> None:
        self.endpoint, self.plan, self.seed = endpoint, plan, seed
        self.begin = time.perf_counter() + plan.warm_up_s
        self.end = self.begin + plan.window_s
        self.lock = threading.Lock()

    @property
    def left_s(self) -> float:
        return self.end - time.perf_counter()

    def ask(self, body: Mapping[str, Any], headers: Mapping[str, str], seen: Seen) -> StreamedAnswer:
        """Send one request, leave it when the window ends, and note what was seen inside."""
        sent_at = time.perf_counter()
        # A salt a window: windows are compared, so none may find what another left behind.
        salted = {**body, "cache_salt": self.seed, "temperature": 0}
        answer = stream_chat(self.endpoint, salted, headers=headers, leaving=Leaving(after_s=max(self.left_s, 1e-3)))
        times = [sent_at + event for event in answer.times]
        inside = [at for at in times if self.begin <= at <= self.end]
        with self.lock:
            seen.num_events += len(inside)
            seen.gaps_s += [after - before for before, after in pairwise(inside)]
            if times and times[0] in inside:
                seen.firsts_s.append(answer.times[0])
            if answer.status == BUSY:
                seen.num_refused += 1
            elif answer.is_failed:
                seen.failures.append(answer.describe_failure())
        if answer.is_failed:
            self.pause(answer.retry_after_s or _WAIT_S)
        return answer

    def pause(self, seconds: float) -> None:
        """Sleep, at most to the window's end."""
        time.sleep(max(min(seconds, self.left_s), 0.0))


def run_window(
    endpoint: Endpoint, plan: AgentsPlan, *, agents: str | None, harvest: str | None, seed: str
) -> tuple[Seen, Seen]:
    """Keep a server busy; returns what the agents and what the harvest clients saw.

    Args:
        endpoint: the server.
        plan: how much.
        agents: the model of the agents; None for no agents.
        harvest: the model of the harvest clients; None for none.
        seed: of all texts; also the salt.

    Raises:
        MeasurementError: an answer failed otherwise than by a 429: figures without it would flatter.
    """
    window = _Window(endpoint, plan, seed)
    of_agents, of_harvest = Seen(), Seen()
    jobs: list[Callable[[], None]] = []
    if agents is not None:
        jobs += [_agent_job(window, agents, number, of_agents) for number in range(plan.num_agents)]
    if harvest is not None:
        jobs += [_harvest_job(window, harvest, number, of_harvest) for number in range(plan.num_harvest)]
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()
    for seen in (of_agents, of_harvest):
        if seen.failures:
            raise MeasurementError(f"{len(seen.failures)} answers failed, the first with {seen.failures[0]}")
    return of_agents, of_harvest


def _agent_job(window: _Window, model: str, number: int, seen: Seen) -> Callable[[], None]:
    plan = window.plan
    text = SessionText(f"{window.seed} agent {number}")
    sizes = Random(f"{window.seed} agent {number}")  # noqa: S311  (sizes and pauses, nothing secret)
    system = {"role": "system", "content": text.prose(plan.system_tokens)}

    def run() -> None:
        messages: list[Mapping[str, Any]] = [system]
        num_tokens = plan.system_tokens
        while window.left_s > 0:
            new_tokens = sizes.randint(*plan.turn_tokens)
            messages.append({"role": "user", "content": text.tool_output(new_tokens)})
            body = {"model": model, "messages": messages, "max_tokens": plan.agent_answer_tokens}
            answer = window.ask(body, {}, seen)
            messages.append({"role": "assistant", "content": strip_thinking(answer.text)})
            num_tokens += new_tokens + plan.agent_answer_tokens
            if answer.is_failed or num_tokens > plan.conversation_tokens:
                messages, num_tokens = [system], plan.system_tokens
            window.pause(sizes.uniform(*plan.pause_s))

    return run


def _harvest_job(window: _Window, model: str, number: int, seen: Seen) -> Callable[[], None]:
    plan = window.plan
    text = SessionText(f"{window.seed} harvest {number}")

    def run() -> None:
        while window.left_s > 0:
            content = text.prose(plan.harvest_prompt_tokens)
            messages = [{"role": "user", "content": content}]
            body = {"model": model, "messages": messages, "max_tokens": plan.harvest_answer_tokens}
            answer = window.ask(body, HARVEST_HEADERS, seen)
            if not answer.times:
                window.pause(_BACK_S)

    return run
