"""Makes the transcript of a coding session: what agents are known to do to a server's prefix cache, in thirty turns.

A main agent works on one long conversation with twelve tools; one of its turns is regenerated, one edited, one left in
mid-stream; sub-agents with a system prompt of their own run in between and at its side; another agent works with the
other model. The client strips thinking from the history: every second answer of a model that does not think loses its
first half, as if that had been thinking. Deterministic from a seed. Refuses to know servers. Called by
`memra bench --make-session`, by tests and by the report's authors.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from memra.cli_bench.agents.session_text import SessionText
from memra.cli_bench.agents.transcript import Turn

NUM_TURNS = 30
_MAIN_SHARE, _OTHER_SHARE = 0.6, 0.2
_SYSTEM_TOKENS, _SUB_SYSTEM_TOKENS = 2400, 700
_LEAST_TOKENS, _MOST_TOKENS = 400, 3000
_ANSWER_TOKENS, _LEAST_ANSWER_TOKENS = 160, 16
_MARKS: Mapping[float, str] = {0.25: "sub", 0.35: "regenerated", 0.55: "edited", 0.65: "side", 0.75: "left"}
"""What happens when the main agent is so far."""
_SENT_TWICE = ("regenerated", "edited", "left")
_LEAST_STEPS = 10
"""So many that no two of the marks fall on one."""
_LEFT_AFTER_TOKENS = 8
_PAUSE_S = 0.4
"""Longest pause for a tool, at a scale of 1."""


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What is asked for.

    Attributes:
        main_model, other_model: as the transcript names them.
        scale: 1 for 400 to 3,000 new tokens a turn and a conversation of about 30,000; small models want less.
        has_tools_field: tools, calls and results in OpenAI's fields, for templates that know them; else in the texts.
    """

    main_model: str = "main"
    other_model: str = "other"
    seed: int = 1
    scale: float = 1.0
    num_turns: int = NUM_TURNS
    has_tools_field: bool = False

    def tokens(self, at_full_scale: float, *, least: int = 1) -> int:
        """A number of tokens at this scale."""
        return max(round(at_full_scale * self.scale), least)


@dataclass(slots=True)
class _Agent:
    """One conversation on its way."""

    name: str
    model: str
    plan: SessionPlan
    text: SessionText
    random: Random
    messages: list[Mapping[str, Any]] = field(default_factory=list)
    tools: list[Mapping[str, Any]] | None = None
    num_turns: int = 0
    last_call: str = ""

    def open(self, num_tokens: int) -> None:
        """Begin with a system prompt that has the tools, or the tools beside it."""
        tools = self.text.tools(num_tokens // 2)
        system = f"You are {self.name}, an agent that writes code.\n{self.text.prose(num_tokens // 3)}"
        if self.plan.has_tools_field:
            self.tools = tools
        else:
            lines = "\n".join(json.dumps(tool["function"]) for tool in tools)
            system += f"\n\nTools, one a line; call one as <call>{{...}}</call>:\n{lines}"
        self.messages.append({"role": "system", "content": system})

    def turn(self, messages: Sequence[Mapping[str, Any]], *, note: str = "", **fields: Any) -> Turn:
        """Make the next turn of these messages."""
        self.num_turns += 1
        body: dict[str, Any] = {"model": self.model, "messages": list(messages), "temperature": 0}
        body["max_tokens"] = self.plan.tokens(_ANSWER_TOKENS, least=_LEAST_ANSWER_TOKENS)
        if self.tools is not None:
            body["tools"] = self.tools
        body |= fields.pop("sampling", {})
        pause_s = round(self.random.random() * _PAUSE_S * self.plan.scale, 2)
        name = f"{self.name}-{self.num_turns}"
        return Turn(name=name, agent=self.name, body=body, note=note, pause_s=pause_s, **fields)

    def next_message(self) -> Mapping[str, Any]:
        """A task at first, later the result of the tool that was called."""
        num_tokens = self.plan.tokens(_MOST_TOKENS * (_LEAST_TOKENS / _MOST_TOKENS) ** self.random.random())
        if not self.last_call:
            return {"role": "user", "content": f"{self.text.prose(num_tokens // 3)}\n{self.text.code(num_tokens // 2)}"}
        output = f"{self.text.path()}\n{self.text.tool_output(num_tokens)}"
        if self.plan.has_tools_field:
            return {"role": "tool", "tool_call_id": self.last_call, "content": output}
        return {"role": "user", "content": f"<result>\n{output}\n</result>"}

    def go_on(self, turn: Turn) -> None:
        """Take a turn and its answer, followed by a tool's call, into the conversation."""
        name, arguments = self.text.tool_call()
        self.last_call = f"call_{turn.name}"
        answer: dict[str, Any] = {"answer_of": turn.name, "drop_share": 0.5 if self.num_turns % 2 else 0.0}
        message: dict[str, Any] = {"role": "assistant", "content": answer}
        if self.plan.has_tools_field:
            function = {"name": name, "arguments": json.dumps(arguments)}
            message["tool_calls"] = [{"id": self.last_call, "type": "function", "function": function}]
        else:
            answer["then"] = f"\n<call>{json.dumps({'name': name, 'arguments': arguments})}</call>"
        self.messages = [*turn.body["messages"], message]


def make_session(plan: SessionPlan) -> list[Turn]:
    """Make the transcript; it has at least one turn of each kind, and `num_turns` in all where those are enough."""
    num_main = max(round(plan.num_turns * _MAIN_SHARE), _LEAST_STEPS + len(_SENT_TWICE))
    num_other = max(round(plan.num_turns * _OTHER_SHARE), 1)
    num_sub = max(plan.num_turns - num_main - num_other, 2)
    return [*_main_turns(plan, num_main, num_sub), *_other_turns(plan, num_other)]


def _open_agent(plan: SessionPlan, name: str, model: str, system_tokens: int) -> _Agent:
    text = SessionText(f"{plan.seed} {name}")
    agent = _Agent(name, model, plan, text, Random(f"{plan.seed} {name} sizes"))  # noqa: S311  (nothing secret)
    agent.open(plan.tokens(system_tokens))
    return agent


def _other_turns(plan: SessionPlan, count: int) -> Iterator[Turn]:
    agent = _open_agent(plan, "other", plan.other_model, _SYSTEM_TOKENS)
    for _ in range(count):
        turn = agent.turn([*agent.messages, agent.next_message()], note="another model")
        yield turn
        agent.go_on(turn)


def _main_turns(plan: SessionPlan, count: int, num_sub: int) -> Iterator[Turn]:
    """The main agent's turns with its sub-agents' between them: one that it waits for, one that runs at its side."""
    agent = _open_agent(plan, "main", plan.main_model, _SYSTEM_TOKENS)
    num_steps = count - len(_SENT_TWICE)
    marks = {int(share * num_steps): kind for share, kind in _MARKS.items()}
    waited = (num_sub + 1) // 2
    for at in range(num_steps):
        kind = marks.get(at, "")
        if kind == "side" and num_sub > waited:
            yield from _sub_turns(plan, "side", num_sub - waited, after=f"main-{agent.num_turns}")
        message = agent.next_message()
        after: tuple[str, ...] = ()
        if kind == "sub":
            turns = list(_sub_turns(plan, "sub", waited, after=f"main-{agent.num_turns}"))
            yield from turns
            after = (turns[-1].name,)
            message = _result_of_agent(message, turns[-1])
        yield from _one_step(agent, message, kind, after=after)


def _result_of_agent(message: Mapping[str, Any], turn: Turn) -> Mapping[str, Any]:
    return {**message, "content": {"before": "The sub-agent says: ", "answer_of": turn.name, "then": "\nGo on."}}


def _one_step(agent: _Agent, message: Mapping[str, Any], kind: str, *, after: tuple[str, ...]) -> Iterator[Turn]:
    """Send one message, twice where the user is not content the first time, and take the answer over."""
    if kind == "left":
        yield agent.turn([*agent.messages, message], note="left", cancel_after_tokens=_LEFT_AFTER_TOKENS)
        message = {**message, "content": f"{message['content']}\n\nStop. {agent.text.prose(60)}"}
        turn = agent.turn([*agent.messages, message], note="after it was left")
    elif kind == "regenerated":
        yield agent.turn([*agent.messages, message])
        sampling = {"temperature": 0.8, "seed": agent.plan.seed}
        turn = agent.turn([*agent.messages, message], note="regenerated", sampling=sampling)
    elif kind == "edited":
        yield agent.turn([*agent.messages, message])
        content = message["content"]
        message = {**message, "content": content[: len(content) // 2] + agent.text.prose(40)}
        turn = agent.turn([*agent.messages, message], note="edited in its middle")
    else:
        turn = agent.turn([*agent.messages, message], note="after a sub-agent" if after else "", after=after)
    yield turn
    agent.go_on(turn)


def _sub_turns(plan: SessionPlan, name: str, count: int, *, after: str) -> Iterator[Turn]:
    agent = _open_agent(plan, name, plan.main_model, _SUB_SYSTEM_TOKENS)
    for number in range(count):
        first = (after,) if number == 0 else ()
        turn = agent.turn([*agent.messages, agent.next_message()], note="a sub-agent", after=first)
        yield turn
        agent.go_on(turn)
