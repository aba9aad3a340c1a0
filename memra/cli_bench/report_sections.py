"""The parts of a model's report that were asked for beside its speed, as text: served, start, busy, errors.

Refuses to know how anything was measured. `report_text` puts them below the table of speeds.
"""

from collections.abc import Iterator, Mapping, Sequence

from memra.cli_bench.bench_request import BenchModel
from memra.cli_bench.busy_bench import ALONE, BUSY, GOAL_RATIO, MEAN, MEDIAN, BusyReport, case_of
from memra.cli_bench.error_bench import NUM_POSITIONS, NUM_TOP, ErrorReport
from memra.cli_bench.error_prompts import PROMPTS
from memra.cli_bench.model_report import ModelReport
from memra.cli_bench.process_memory import ProcessMemory
from memra.cli_bench.served_bench import BARE, SERVED, ServedReport
from memra.cli_bench.start_bench import SERVER, StartMemory, StartReport
from memra.cli_bench.subjects import Facts
from memra.cli_bench.table import NOTHING, format_number, format_spread, format_table

_MB = 1e6
_MS = 1e3


def render_sections(report: ModelReport) -> Iterator[str]:
    """Each part that there is."""
    if report.start is not None:
        yield _render(_start_rows(report.start, report.model), _start_remarks(report.start))
    if report.busy is not None:
        yield _render(_busy_rows(report.busy, report.facts), _busy_remarks(report.busy))
    if report.served is not None:
        yield _render(_served_rows(report.served), _served_remarks(report.served))
    if report.errors is not None:
        yield _render(_error_rows(report.errors, report.facts), _error_remarks(report.errors))


def _render(rows: Sequence[Sequence[str]], remarks: Sequence[str]) -> str:
    return "".join([format_table(rows), *(f"{line}\n" for line in remarks)])


def _start_rows(start: StartReport, model: BenchModel) -> list[list[str]]:
    cases = start.seconds.cases
    seconds = [format_spread(start.seconds.spread(SERVER, case)) for case in cases]
    memory = [start.memory.get(case) for case in cases]
    return [
        ["memra run", *cases],
        ["to a green /readyz, s", *seconds],
        *_memory_rows("ready", [None if held is None else held.ready for held in memory]),
        *_memory_rows("answered", [None if held is None else held.answered for held in memory]),
        ["answered: beyond file and KV, MB", *(_megabytes(_beyond(held, model)) for held in memory)],
    ]


def _memory_rows(when: str, found: Sequence[ProcessMemory | None]) -> list[list[str]]:
    return [
        [f"{when}: RssAnon, MB", *(_megabytes(None if held is None else held.anonymous_bytes) for held in found)],
        [f"{when}: RssFile, MB", *(_megabytes(None if held is None else held.file_bytes) for held in found)],
        [f"{when}: Pss, MB", *(_megabytes(None if held is None else held.proportional_bytes) for held in found)],
    ]


def _beyond(memory: StartMemory | None, model: BenchModel) -> int | None:
    if memory is None:
        return None
    return memory.beyond_bytes(file_bytes=model.file_bytes, cache_bytes_per_token=model.cache_bytes_per_token)


def _megabytes(num_bytes: int | None) -> str:
    return NOTHING if num_bytes is None else f"{num_bytes / _MB:.0f}"


def _start_remarks(start: StartReport) -> list[str]:
    lines = [
        "seconds from the start of the process, the file in the system's cache; answered: after one short answer",
        "beyond file and KV: RssAnon + RssFile + RssShmem, less the model file's size and the cache pages in use",
    ]
    return lines + start.notes


def _busy_rows(busy: BusyReport, facts: Mapping[str, Facts]) -> list[list[str]]:
    rows = [["1 row, ms a step", ALONE, BUSY, "ratio"]]
    for engine in busy.engines:
        for kind in (MEDIAN, MEAN):
            case = case_of(engine, kind)
            spreads = [format_spread(busy.seconds.spread(subject, case), scale=_MS) for subject in (ALONE, BUSY)]
            rows.append([f"{facts[engine].backend}, {kind}", *spreads, format_spread(busy.ratio(engine, kind))])
    return rows


def _busy_remarks(busy: BusyReport) -> list[str]:
    line = f"{busy.num_steps} steps a round; one process spins on one of the processors; goal: at most {GOAL_RATIO}"
    return [line, *busy.notes]


def _error_rows(errors: ErrorReport, facts: Mapping[str, Facts]) -> list[list[str]]:
    engines = list(errors.total)
    heads = [f"{engines[0]} / {other}" for other in engines[1:]]
    total = [errors.total[engine] for engine in engines]
    return [
        ["against float32", *(facts[engine].backend for engine in engines), *heads],
        *(_error_row(f"rms, {name}", [errors.prompts[engine, name].rms for engine in engines]) for name in PROMPTS),
        _error_row("rms, all", [found.rms for found in total]),
        _error_row("largest", [found.largest for found in total]),
        _error_row("divergence", [found.divergence for found in total]),
        ["same likeliest token, %", *(f"{100 * found.same_best:.1f}" for found in total), *("" for _ in heads)],
    ]


def _error_row(name: str, values: Sequence[float]) -> list[str]:
    """Every engine's figure, and the first one's as a part of each other's."""
    ratios = [format_number(values[0] / other) if other else NOTHING for other in values[1:]]
    return [name, *(f"{value:.3g}" for value in values), *ratios]


def _error_remarks(errors: ErrorReport) -> list[str]:
    line = (
        f"log probabilities in nats against {errors.truth}, of its {NUM_TOP} likeliest tokens at {NUM_POSITIONS} "
        f"positions of {len(PROMPTS)} prompts, the true tokens before them"
    )
    return [line, *errors.notes]


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
