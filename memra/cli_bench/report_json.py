"""A run as JSON: every round's figure, so that somebody else can summarise differently.

The shape is documented in docs/how-to/measure.md.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from memra.cli_bench.bench_request import BenchModel
from memra.cli_bench.busy_bench import GOAL_RATIO, MEAN, MEDIAN, BusyReport, case_of
from memra.cli_bench.error_bench import NUM_POSITIONS, NUM_TOP, ErrorReport
from memra.cli_bench.error_prompts import PROMPTS
from memra.cli_bench.model_report import ModelReport
from memra.cli_bench.report_text import read_share
from memra.cli_bench.served_bench import BARE, ServedReport
from memra.cli_bench.spread import Measurements
from memra.cli_bench.start_bench import SERVER, StartReport
from memra.engine.processors import processor_name

_FORMAT = 1
"""Goes up when a field changes its meaning or goes away."""


def to_json(reports: Sequence[ModelReport], *, num_threads: int, fingerprint: str) -> Mapping[str, Any]:
    """Everything that was measured, in plain values."""
    return {
        "format": _FORMAT,
        "fingerprint": fingerprint,
        "processor": processor_name(),
        "system": platform.platform(),
        "num_threads": num_threads,
        "models": [_model(report) for report in reports],
    }


def _model(report: ModelReport) -> Mapping[str, Any]:
    return {
        "name": report.model.name,
        "file": report.model.path.name,
        "description": report.model.description,
        "engines": {
            label: {**asdict(facts), "read_share": read_share(report, label)} for label, facts in report.facts.items()
        },
        "tokens_per_s": _measurements(report.rates),
        "ratios": _ratios(report),
        "memory_read_bytes_per_s": report.read_rates,
        "first_token_s": _measurements(report.first_tokens),
        "first_token_prompt_tokens": report.first_prompt_tokens,
        "has_prefix_reuse": report.has_prefix_reuse,
        "skipped": [case.label for case in report.skipped],
        "notes": report.notes,
        "served": None if report.served is None else _served(report.served),
        "start": None if report.start is None else _start(report.start, report.model),
        "busy": None if report.busy is None else _busy(report.busy),
        "errors": None if report.errors is None else _errors(report.errors),
    }


def _measurements(found: Measurements) -> Mapping[str, Any]:
    """By subject and case: a summary and the rounds."""
    return {
        subject: {
            case: {"rounds": found.values[subject, case], **(asdict(spread) if spread else {})}
            for case in found.cases
            if (subject, case) in found.values
            for spread in [found.spread(subject, case)]
        }
        for subject in found.subjects
    }


def _ratios(report: ModelReport) -> Mapping[str, Any]:
    main, *others = report.facts or [""]
    return {
        f"{main} / {other}": {
            case: asdict(ratio)
            for case in report.rates.cases
            if (ratio := report.rates.ratio(main, other, case=case)) is not None
        }
        for other in others
    }


def _served(served: ServedReport) -> Mapping[str, Any]:
    return {
        "client": served.client,
        "tokens_per_s": _measurements(served.rates),
        "ratios": {case: asdict(ratio) for case in served.rates.cases if (ratio := served.ratio(case)) is not None},
        "mean_ratio": served.mean_ratio(other=BARE),
        "last_streams": [
            {"server": server, "case": case, **asdict(stream)} for (server, case), stream in served.streams.items()
        ],
        "notes": served.notes,
    }


def _start(start: StartReport, model: BenchModel) -> Mapping[str, Any]:
    sizes = {"file_bytes": model.file_bytes, "cache_bytes_per_token": model.cache_bytes_per_token}
    return {
        "seconds": _measurements(start.seconds).get(SERVER, {}),
        "memory": {
            case: {**asdict(memory), "beyond_bytes": memory.beyond_bytes(**sizes)}
            for case, memory in start.memory.items()
        },
        **sizes,
        "notes": start.notes,
    }


def _busy(busy: BusyReport) -> Mapping[str, Any]:
    ratios = {(engine, kind): busy.ratio(engine, kind) for engine in busy.engines for kind in (MEDIAN, MEAN)}
    return {
        "steps_a_round": busy.num_steps,
        "goal_ratio": GOAL_RATIO,
        "seconds": _measurements(busy.seconds),
        "ratios": {case_of(*key): asdict(ratio) for key, ratio in ratios.items() if ratio is not None},
        "notes": busy.notes,
    }


def _errors(errors: ErrorReport) -> Mapping[str, Any]:
    return {
        "reference": errors.truth,
        "top_tokens": NUM_TOP,
        "positions": NUM_POSITIONS,
        "engines": {
            engine: {
                **asdict(total),
                "prompts": {name: asdict(errors.prompts[engine, name]) for name in PROMPTS},
            }
            for engine, total in errors.total.items()
        },
        "notes": errors.notes,
    }
