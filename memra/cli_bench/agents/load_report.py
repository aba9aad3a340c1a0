"""Agents beside a harvest, and a soak, as tables and as JSON. Refuses to know how it was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from memra.cli_bench.agents.agents_bench import (
    AGENTS,
    BOTH,
    COLD,
    EIGHT,
    FIRST,
    GAP_P50,
    GAP_P99,
    GOALS,
    HARVEST,
    LONG,
    ONE,
    RATE,
    SHARED,
    WARM,
    AgentsReport,
)
from memra.cli_bench.agents.busy_agents import AgentsPlan
from memra.cli_bench.agents.soak import SoakReport
from memra.cli_bench.spread import Measurements
from memra.cli_bench.table import NOTHING, format_spread, format_table

_FORMAT = 1


def render_agents(report: AgentsReport, plan: AgentsPlan) -> str:
    """For a person."""
    load = report.load
    rows: list[Sequence[str]] = [("", "alone", "together", "ratio", "goal")]
    for case, alone, scale in (
        (GAP_P50, AGENTS, 1e3),
        (GAP_P99, AGENTS, 1e3),
        (FIRST, AGENTS, 1e3),
        (RATE, HARVEST, 1),
    ):
        unit = f"{case}, ms" if alone == AGENTS else case
        found = [format_spread(load.spread(subject, case), scale=scale) for subject in (alone, BOTH)]
        rows.append((unit, *found, format_spread(report.load_ratio(case)), _goal(case)))
    firsts: list[Sequence[str]] = [("first token, ms", "one / cold", "8 / warm", "ratio", "goal")]
    for case, (one, other) in ((LONG, (COLD, WARM)), (SHARED, (ONE, EIGHT))):
        found = [format_spread(report.firsts.spread(subject, case), scale=1e3) for subject in (one, other)]
        firsts.append((case, *found, format_spread(report.first_ratio(case)), _goal(case)))
    heading = (
        f"{plan.num_agents} agents: {plan.turn_tokens[0]} to {plan.turn_tokens[1]} new tokens a turn, answers of "
        f"{plan.agent_answer_tokens}, {plan.pause_s[0]:g} to {plan.pause_s[1]:g} s for tools between turns;\n"
        f"{plan.num_harvest} harvest clients on the other model: prompts of {plan.harvest_prompt_tokens}, answers of "
        f"{plan.harvest_answer_tokens} tokens, {report.num_refused} refusals;\n"
        f"windows of {plan.window_s:g} s after {plan.warm_up_s:g} s, each with a salt of its own\n"
    )
    notes = "".join(f"{note}\n" for note in report.notes)
    return "\n".join([heading, format_table(rows), format_table(firsts), notes])


def _goal(case: str) -> str:
    if case not in GOALS:
        return NOTHING
    return f"{'at least' if case == RATE else 'at most'} {GOALS[case]:g}"


def agents_json(report: AgentsReport, plan: AgentsPlan) -> Mapping[str, Any]:
    """Every round's figure; the shape is documented in docs/how-to/measure.md."""
    ratios = {case: report.load_ratio(case) for case in (GAP_P50, GAP_P99, FIRST, RATE)}
    ratios |= {case: report.first_ratio(case) for case in (LONG, SHARED)}
    return {
        "format": _FORMAT,
        "plan": asdict(plan),
        "load": _rounds(report.load),
        "first_token_s": _rounds(report.firsts),
        "ratios": {case: asdict(ratio) for case, ratio in ratios.items() if ratio is not None},
        "goals": GOALS,
        "num_refused": report.num_refused,
        "notes": report.notes,
    }


def _rounds(found: Measurements) -> Mapping[str, Any]:
    return {
        subject: {case: found.values[subject, case] for case in found.cases if (subject, case) in found.values}
        for subject in found.subjects
    }


def render_soak(report: SoakReport) -> str:
    """For a person."""
    rows = [("", "found", "limit", "")]
    rows += [(each.what, each.found, each.limit, "good" if each.is_good else "BROKEN") for each in report.verdicts]
    return (
        f"{report.seconds:.0f} s of mixed load: {report.num_answered} answered, {report.num_left} left early, "
        f"{report.num_refused} refused with 429 and sent again\n\n{format_table(rows)}"
    )


def soak_json(report: SoakReport) -> Mapping[str, Any]:
    """Everything in plain values."""
    return {"format": _FORMAT, **asdict(report), "step_p99_ms_by_minute": report.step_p99_by_minute}
