"""A model's report as text: which rows there are, in which units, and what has to be said beside them.

The table of speeds; `report_sections` has what stands below it, `report_json` the same for programs. Refuses to know
how anything was measured.
"""

from collections.abc import Sequence

from memra.cli_bench.cases import Case, DecodeCase
from memra.cli_bench.model_report import COLD, WARM, ModelReport
from memra.cli_bench.report_sections import render_sections
from memra.cli_bench.spread import Spread
from memra.cli_bench.table import NOTHING, format_number, format_spread, format_table
from memra.engine.processors import find_processors, processor_name

_GB = 1e9
_MB = 1e6
_MS = 1e3


def render_machine(num_threads: int, version: str) -> str:
    """One line on where the figures come from."""
    return f"memra {version}, {processor_name()}, {num_threads} threads of {find_processors().num_usable} usable\n"


def render_model(report: ModelReport) -> str:
    """Everything about one model."""
    parts = [f"\n{report.model.name}: {report.model.description}\n"]
    if report.cases:
        parts.append(format_table(_speed_rows(report)))
    parts += [f"{line}\n" for line in _remarks(report)]
    parts += [f"\n{section}" for section in render_sections(report)]
    return "".join(parts)


def _speed_rows(report: ModelReport) -> list[list[str]]:
    labels = list(report.facts)
    others = labels[1:]
    rows = [["", *(report.facts[label].backend for label in labels), *(f"{labels[0]} / {other}" for other in others)]]
    for case in report.cases:
        speeds = [format_spread(report.rates.spread(label, case.label)) for label in labels]
        ratios = [format_spread(report.rates.ratio(labels[0], other, case=case.label)) for other in others]
        rows.append([f"{case.label}, tok/s", *speeds, *ratios])
    rows += [_row(name, cells, others) for name, cells in _fact_rows(report, labels)]
    return rows


def _fact_rows(report: ModelReport, labels: Sequence[str]) -> list[tuple[str, list[str]]]:
    facts = [report.facts[label] for label in labels]
    warm = [format_spread(report.first_tokens.spread(label, WARM), scale=_MS) for label in labels]
    return [
        (
            f"{COLD}, {report.first_prompt_tokens} tokens, ms",
            [format_spread(report.first_tokens.spread(label, COLD), scale=_MS) for label in labels],
        ),
        (f"{WARM}, ms", warm if report.has_prefix_reuse else ["not available yet", *[NOTHING] * (len(labels) - 1)]),
        ("load, s", [format_number(fact.load_s) for fact in facts]),
        ("peak memory, MB", [_megabytes(fact.peak_bytes) for fact in facts]),
        ("beyond file and KV, MB", [_megabytes(fact.peak_beyond_bytes) for fact in facts]),
        ("1 row reads of memory, %", [_share(report, label) for label in labels]),
    ]


def _row(name: str, cells: Sequence[str], others: Sequence[str]) -> list[str]:
    return [name, *cells, *("" for _ in others)]


def _megabytes(num_bytes: int | None) -> str:
    return NOTHING if num_bytes is None else f"{num_bytes / _MB:.0f}"


def _share(report: ModelReport, label: str) -> str:
    """Bytes that decoding one row reads a second, as the file stores them, against what the memory gave."""
    share = read_share(report, label)
    return NOTHING if share is None else f"{100 * share:.0f}"


def read_share(report: ModelReport, label: str) -> float | None:
    """The part of the measured read speed that one row's weights need; None where a part is missing.

    Weights count as the main executor's file stores them, for every engine: one that keeps them in a larger form reads
    more than it is credited for.
    """
    case = next((case for case in report.cases if _is_plain_decode(case)), None)
    weight_bytes = next((fact.weight_bytes_per_step for fact in report.facts.values()), None)
    speed = None if case is None else report.rates.spread(label, case.label)
    if speed is None or weight_bytes is None or not report.read_rates:
        return None
    return speed.median * weight_bytes / Spread.of(report.read_rates).median


def _is_plain_decode(case: Case) -> bool:
    return isinstance(case, DecodeCase) and case.rows == 1 and case.depth == 0


def _remarks(report: ModelReport) -> list[str]:
    lines = []
    if report.read_rates:
        rate = format_spread(Spread.of(report.read_rates), scale=1 / _GB)
        lines.append(f"memory read speed {rate} GB/s in the same rounds (numpy, a lower bound)")
    if report.cases and not report.has_prefix_reuse:
        lines.append(f"{WARM}: not available yet, the engine computed the repeated prompt again")
    lines += [
        f"{case.label}: left out, longer than the context of {report.model.context_tokens} tokens"
        for case in report.skipped
    ]
    return lines + report.notes
