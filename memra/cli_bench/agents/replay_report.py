"""A replayed transcript as a table, as JSON, and as the file of digests that another run is held against.

Refuses to know how it was measured. What a server does not report is said to be so; an estimate is marked `~`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memra.cli_bench.agents.percentiles import percentile
from memra.cli_bench.agents.replay import TurnResult, digest_of
from memra.cli_bench.table import NOTHING, format_number, format_table

GOAL_RATIO = 1.15
"""Most tokens that memra aims to compute for every token that is new: pages are whole, and some boundaries are lost."""
_FORMAT = 1
_NOTE_CHARS = 26
_HEAD = ("turn", "note", "prompt", "cached", "recomputed", "new", "first ms", "gap p50 ms", "gap p99 ms", "out")


@dataclass(frozen=True, slots=True)
class ModelTotals:
    """The sums over one model's turns that were answered.

    Attributes:
        num_cached, num_recomputed: None where the server does not report them for every turn.
        num_estimated: recomputed tokens as the times to the first text suggest, where the server reports none.
        num_new: None where the client could not count every prompt.
        num_miscounted: turns in which the client counted other prompt tokens than the server.
    """

    model: str
    num_turns: int
    num_prompt: int | None
    num_cached: int | None
    num_recomputed: int | None
    num_estimated: float | None
    num_new: int | None
    num_miscounted: int

    @property
    def ratio(self) -> float | None:
        """Recomputed over new."""
        return self.num_recomputed / self.num_new if self.num_recomputed is not None and self.num_new else None


def sum_up(results: Sequence[TurnResult]) -> list[ModelTotals]:
    """Add turns up, model by model in the order of the transcript."""
    models = dict.fromkeys(result.turn.model for result in results)
    return [_total(model, [result for result in results if result.turn.model == model]) for model in models]


def _total(model: str, results: Sequence[TurnResult]) -> ModelTotals:
    # Of a turn that the client left no usage came, so its tokens can be in no sum.
    answered = [result for result in results if not (result.answer.is_failed or result.answer.has_left)]
    estimates = estimate_recomputed(results)
    num_recomputed = _sum([result.num_recomputed for result in answered])
    return ModelTotals(
        model=model,
        num_turns=len(answered),
        num_prompt=_sum([result.num_prompt for result in answered]),
        num_cached=_sum([result.num_cached for result in answered]),
        num_recomputed=num_recomputed,
        num_estimated=None
        if num_recomputed is not None or not estimates
        else sum(estimates.get(result.turn.name, 0.0) for result in answered),
        num_new=_sum([result.num_new for result in answered]),
        num_miscounted=sum(result.num_counted not in (None, result.num_prompt) for result in answered),
    )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def estimate_recomputed(results: Sequence[TurnResult]) -> dict[str, float]:
    """Guess by turn what one model's server computed that does not say it, from times to the first text.

    A turn computes at least what is new in it, so the highest speed at which any turn did that is the model's: short
    turns look larger than they are, and a wait for other agents counts as computing.
    """
    if any(result.num_recomputed is not None for result in results):
        return {}
    speeds = [result.num_new / result.first_s for result in results if result.num_new and result.first_s]
    if not speeds:
        return {}
    tokens_per_s = max(speeds)
    return {
        result.turn.name: min(result.first_s * tokens_per_s, float(result.num_prompt))
        for result in results
        if result.first_s is not None and result.num_prompt is not None
    }


def render(results: Sequence[TurnResult], *, is_cold: bool = False) -> str:
    """Everything for a person; `is_cold` where every request had a salt of its own."""
    estimates: dict[str, float] = {}
    for total in sum_up(results):
        estimates |= estimate_recomputed([result for result in results if result.turn.model == total.model])
    rows = [_HEAD, *(_row(result, estimates.get(result.turn.name)) for result in results)]
    failures = [
        f"turn {result.turn.name} failed: {result.answer.describe_failure()}\n"
        for result in results
        if result.answer.is_failed
    ]
    totals = "".join(_render_total(total, is_cold=is_cold) for total in sum_up(results))
    return f"{format_table(rows)}\n{totals}{''.join(failures)}digest of all whole answers: {digest_of(results)}\n"


def _row(result: TurnResult, estimate: float | None) -> Sequence[str]:
    gaps = result.answer.gaps_s
    recomputed = _count(result.num_recomputed)
    if result.num_recomputed is None and estimate is not None:
        recomputed = f"~{estimate:.0f}"
    return (
        result.turn.name,
        result.turn.note[:_NOTE_CHARS],
        _count(result.num_prompt),
        _count(result.num_cached),
        recomputed,
        _count(result.num_new),
        _milliseconds(result.first_s),
        _milliseconds(percentile(gaps, 0.5)),
        _milliseconds(percentile(gaps, 0.99)),
        f"{len(result.answer.times)}{' left' if result.answer.has_left else ''}",
    )


def _count(value: int | None) -> str:
    return NOTHING if value is None else str(value)


def _milliseconds(value: float | None) -> str:
    return NOTHING if value is None else format_number(value * 1e3)


def _render_total(total: ModelTotals, *, is_cold: bool) -> str:
    name = total.model or "(no model named)"
    lines = [f"{name}: {total.num_turns} whole answers, {_count(total.num_prompt)} prompt tokens"]
    if total.num_recomputed is not None:
        lines.append(f"  cached {total.num_cached}, recomputed {total.num_recomputed}")
    elif total.num_estimated is not None:
        lines.append(f"  cached: not reported by the server; recomputed ~{total.num_estimated:.0f}, estimated from")
        lines.append("  times to the first text at the highest speed at which any turn's new tokens came")
    else:
        lines.append("  cached: not reported by the server")
    if is_cold:
        lines.append("  cold: every request had a salt of its own, by which a server must not reuse anything")
    elif total.num_new is None:
        lines.append("  new after branching: unknown; count with --model-file NAME=PATH")
    else:
        ratio = NOTHING if total.ratio is None else f"{total.ratio:.3f} (goal: at most {GOAL_RATIO})"
        if total.num_estimated is not None:
            ratio = f"~{total.num_estimated / total.num_new:.2f}, estimated"
        lines.append(f"  new after branching {total.num_new}; recomputed / new {ratio}")
    if total.num_miscounted:
        lines.append(f"  in {total.num_miscounted} turns the client counts other prompt tokens than the server:")
        lines.append("  what is called new is then an approximation")
    return "".join(f"{line}\n" for line in lines)


def to_json(results: Sequence[TurnResult], *, url: str) -> Mapping[str, Any]:
    """Everything in plain values; the shape is documented in docs/how-to/measure.md."""
    return {
        "format": _FORMAT,
        "url": url,
        "digest": digest_of(results),
        "models": [
            {
                "name": total.model,
                "turns": total.num_turns,
                "prompt_tokens": total.num_prompt,
                "cached_tokens": total.num_cached,
                "recomputed_tokens": total.num_recomputed,
                "estimated_recomputed_tokens": total.num_estimated,
                "new_tokens": total.num_new,
                "recomputed_over_new": total.ratio,
                "miscounted_turns": total.num_miscounted,
            }
            for total in sum_up(results)
        ],
        "turns": [_turn_json(result) for result in results],
    }


def _turn_json(result: TurnResult) -> Mapping[str, Any]:
    return {
        "turn": result.turn.name,
        "agent": result.turn.agent,
        "model": result.turn.model,
        "note": result.turn.note,
        "prompt_tokens": result.num_prompt,
        "counted_tokens": result.num_counted,
        "cached_tokens": result.num_cached,
        "recomputed_tokens": result.num_recomputed,
        "new_tokens": result.num_new,
        "times_s": result.answer.times,
        "total_s": result.answer.total_s,
        "has_left": result.answer.has_left,
        "error": result.answer.describe_failure() if result.answer.is_failed else None,
        "digest": result.digest,
    }


def digests_json(results: Sequence[TurnResult]) -> Mapping[str, Any]:
    """What `--digests` writes and `--expect` reads: a digest of every whole answer by turn."""
    turns = {result.turn.name: result.digest for result in results if result.digest is not None}
    return {"format": _FORMAT, "digest": digest_of(results), "turns": turns}
