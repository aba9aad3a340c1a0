"""What the front costs, as text and for JSON. Knows the figures and their goals; measures nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memra.cli_bench.front.front_load import token_case
from memra.cli_bench.front.request_parts import REQUEST_GOAL_MS, TOKEN_GOAL_US, RequestParts
from memra.cli_bench.table import NOTHING, format_number, format_table

SERVED_TOKEN_GOAL_US = 70.0
_GOAL_CLIENTS = 8


@dataclass(slots=True)
class FrontReport:
    """One model's front, microseconds of processor time.

    Attributes:
        num_messages, num_tools: of the chat.
        scripted: with a worker that costs nothing, by load.
        served: in `memra run`, by load; empty where it was not measured.
        notes: what is to be said besides.
    """

    model: str
    num_messages: int
    num_tools: int
    parts: RequestParts
    client: str
    scripted: Mapping[str, float]
    served: Mapping[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def render_front(report: FrontReport) -> str:
    """Return the report as text."""
    parts = report.parts
    stages = [
        ["a chat by its parts", "ms"],
        ["decode and validate", format_number(parts.validate / 1e3)],
        ["render", format_number(parts.render / 1e3)],
        ["frame the answer", format_number(parts.frame_whole / 1e3)],
        [f"these three (goal: below {REQUEST_GOAL_MS:g})", format_number(parts.request_ms)],
        [f"tokenize, {parts.num_prompt_tokens:,} tokens", format_number(parts.tokenize / 1e3)],
    ]
    cases = [
        ["all of the loop, us", "scripted worker", "memra run"],
        *([case, format_number(cost), _served(report, case)] for case, cost in report.scripted.items()),
    ]
    return (
        f"{report.model}: processor time of the front, best of the rounds; {report.client} client\n\n"
        f"{report.num_messages} messages, {report.num_tools} tools\n{format_table(stages)}\n"
        f"framing a streamed token in a loop: {format_number(parts.frame_token)} us (goal: below {TOKEN_GOAL_US:g})\n\n"
        f"{format_table(cases)}goal: below {SERVED_TOKEN_GOAL_US:g} us for {token_case(_GOAL_CLIENTS)}\n"
        + "".join(f"note: {note}\n" for note in report.notes)
    )


def front_json(reports: list[FrontReport]) -> Mapping[str, Any]:
    """Return every figure, microseconds, for a file."""
    return {
        report.model: {
            "num_messages": report.num_messages,
            "num_tools": report.num_tools,
            "num_prompt_tokens": report.parts.num_prompt_tokens,
            "validate_us": report.parts.validate,
            "render_us": report.parts.render,
            "tokenize_us": report.parts.tokenize,
            "frame_whole_us": report.parts.frame_whole,
            "frame_token_us": report.parts.frame_token,
            "client": report.client,
            "scripted_us": dict(report.scripted),
            "served_us": dict(report.served),
            "notes": report.notes,
        }
        for report in reports
    }


def _served(report: FrontReport, case: str) -> str:
    cost = report.served.get(case)
    return NOTHING if cost is None else format_number(cost)
