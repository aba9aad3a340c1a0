"""A model's report as text: which rows there are, in which units, and what has to be said beside them.

Refuses to know how anything was measured. `report_json` has the same for programs.
"""

from collections.abc import Sequence

from memra.cli_bench.cases import Case, DecodeCase
from memra.cli_bench.model_bench import COLD, WARM, ModelReport
from memra.cli_bench.served_bench import BARE, SERVED, ServedReport
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
    parts = [
        f"\n{report.model.name}: {report.model.description}\n",
        format_table(_speed_rows(report)),
        *(f"{line}\n" for line in _remarks(report)),
    ]
    if report.served is not None:
        parts += [
            "\n",
            format_table(_served_rows(report.served)),
            *(f"{line}\n" for line in _served_remarks(report.served)),
        ]
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
    if not report.has_prefix_reuse:
        lines.append(f"{WARM}: not available yet, the engine computed the repeated prompt again")
    lines += [
        f"{case.label}: left out, longer than the context of {report.model.context_tokens} tokens"
        for case in report.skipped
    ]
    return lines + report.notes


def _served_rows(served: ServedReport) -> list[list[str]]:
    others = [name for name in served.rates.subjects if name not in {BARE, SERVED}]
    ratio_heads = [f"{SERVED} / {name}" for name in (BARE, *others)]
    rows = [
        [
            "",
            "bare, tok/s",
            "served, tok/s",
            *(f"{name}, tok/s" for name in others),
            *ratio_heads,
            "first, ms",
            "gap p99, ms",
        ]
    ]
    for case in served.rates.cases:
        speeds = [format_spread(served.rates.spread(name, case)) for name in (BARE, SERVED, *others)]
        ratios = [format_spread(served.ratio(case, other=name)) for name in (BARE, *others)]
        stream = served.streams.get((SERVED, case))
        waits = [stream.first_ms, stream.gap_p99_ms] if stream else [None, None]
        rows.append([case, *speeds, *ratios, *(NOTHING if wait is None else format_number(wait) for wait in waits)])
    means = [served.mean_ratio(other=name) for name in (BARE, *others)]
    filled = [NOTHING if mean is None else format_number(mean) for mean in means]
    rows.append(["geometric mean", *("" for _ in (BARE, SERVED, *others)), *filled, "", ""])
    return rows


def _served_remarks(served: ServedReport) -> list[str]:
    line = f"load client: {served.client}"
    if served.client != "compiled":
        line += " (no C++ compiler; they take processor time from the server, which makes served look slower)"
    return [line, *served.notes]
