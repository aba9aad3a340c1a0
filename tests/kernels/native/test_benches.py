"""Every operator's bench prints its table; what the figures are is nobody's test."""

import importlib
from types import ModuleType

import pytest
from memra_kernels import step_timer

SMALLER = {
    "attention": {"SHAPES": {"2 heads of 16 on 1": (2, 1, 16)}, "CONTEXTS": (64,)},
    "causal_conv": {"CHANNELS": (64,)},
    "elementwise": {},
    "embed": {},
    "experts": {"EXPERTS": 4, "USED": 2, "WIDTH": 256, "COLUMNS": 256},
    "gated_delta": {"HEAD_DIM": 16},
    "gated_product": {"WIDTHS": (64,)},
    "head": {"VOCABULARY": 64},
    "layer_norm": {},
    "linear": {"ROWS": 64},
    "rmsnorm": {},
    "rope": {},
    "slice": {},
}
"""What is made smaller, by operator, beside the numbers of rows."""
NUM_LINES = {"attention": 1, "embed": 16, "gated_product": 2, "head": 6, "linear": 16, "rmsnorm": 4, "rope": 6}
NUM_LINES |= {"causal_conv": 1, "elementwise": 9, "experts": 3, "gated_delta": 2, "layer_norm": 3, "slice": 3}


def _load(operator: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module(f"memra_kernels.{operator}.bench")
    for name, value in {"BATCHES": (1, 3), **SMALLER[operator]}.items():
        monkeypatch.setattr(module, name, value)
    return module


@pytest.mark.parametrize("operator", list(SMALLER))
def test_a_bench_prints_a_figure_for_every_line_and_column(operator: str, monkeypatch, capsys):
    _load(operator, monkeypatch).main()
    title, _, head, _, *lines = capsys.readouterr().out.splitlines()
    assert title.endswith("one thread, microseconds")
    assert len(lines) >= NUM_LINES[operator]
    for line in lines:
        cells = line.split("|")[2:-1]
        assert len(cells) == 2 == head.count("rows")
        assert all(float(cell) >= 0 for cell in cells)


def test_the_fastest_call_counts(monkeypatch):
    times = iter([0.0, 5.0, 10.0, 12.0, 20.0, 29.0])
    monkeypatch.setattr(step_timer.time, "perf_counter", lambda: next(times))
    assert step_timer.fastest_us(lambda: None, num_calls=3) == 2e6


def test_a_row_operation_is_what_many_of_them_add_to_a_step(monkeypatch):
    times = iter([74.0, 10.0])
    added = []
    monkeypatch.setattr(step_timer, "fastest_us", lambda _: next(times))
    pool = step_timer.ThreadPool(1)
    found = step_timer.row_operation_us(pool, 16, 2, add=lambda _, x: lambda: added.append(x))
    pool.close()
    assert (found, len(added)) == (1.0, 64)


@pytest.mark.parametrize(("value", "text"), [(0.05484, "0.0548"), (5.0412, "5.04"), (1465.4, "1465")])
def test_figures_have_three_digits(value: float, text: str, capsys):
    step_timer.print_table("t", ["c"], [("name", [value])])
    assert capsys.readouterr().out.endswith(f"| name | {text} |\n")
