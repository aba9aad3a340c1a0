"""Everything that was measured about one model, as plain values.

Filled by `model_bench`, read by the two reports; refuses to know how it came about and how it is shown.
"""

from dataclasses import dataclass, field

from memra.cli_bench.bench_request import BenchModel
from memra.cli_bench.busy_bench import BusyReport
from memra.cli_bench.cases import Case
from memra.cli_bench.error_bench import ErrorReport
from memra.cli_bench.served_bench import ServedReport
from memra.cli_bench.spread import Measurements
from memra.cli_bench.start_bench import StartReport
from memra.cli_bench.subjects import Facts

COLD, WARM = "first token cold", "first token warm"


@dataclass(slots=True)
class ModelReport:
    """Everything about one model.

    Attributes:
        cases: what the rates are of; empty where speed was left out.
        rates: tokens a second by engine and case.
        read_rates: bytes a second that the memory gave, once in every round.
        first_tokens: seconds by executor and `COLD` or `WARM`.
        has_prefix_reuse: whether the engine took the second prompt's beginning from its cache.
        skipped: cases that are longer than the model's context.
        notes: what failed, and why.
    """

    model: BenchModel
    cases: list[Case]
    facts: dict[str, Facts] = field(default_factory=dict)
    rates: Measurements = field(default_factory=Measurements)
    read_rates: list[float] = field(default_factory=list)
    first_tokens: Measurements = field(default_factory=Measurements)
    has_prefix_reuse: bool = False
    first_prompt_tokens: int = 0
    served: ServedReport | None = None
    start: StartReport | None = None
    busy: BusyReport | None = None
    errors: ErrorReport | None = None
    skipped: list[Case] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
