"""A run as JSON: every round's figure, so that somebody else can summarise differently.

The shape is documented in docs/how-to/measure.md.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from memra.cli_bench.model_bench import ModelReport
from memra.cli_bench.report_text import read_share
from memra.cli_bench.served_bench import BARE, ServedReport
from memra.cli_bench.spread import Measurements
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
    main, *others = report.facts
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
