import json
from pathlib import Path

import pytest

from memra.cli_bench.bench_request import BenchModel
from memra.cli_bench.busy_bench import ALONE, BUSY, MEAN, MEDIAN, BusyReport, case_of
from memra.cli_bench.error_bench import ErrorReport, Errors
from memra.cli_bench.error_prompts import PROMPTS
from memra.cli_bench.model_report import ModelReport
from memra.cli_bench.process_memory import ProcessMemory
from memra.cli_bench.report_json import to_json
from memra.cli_bench.report_text import render_model
from memra.cli_bench.start_bench import COLD, SERVER, StartMemory, StartReport
from memra.cli_bench.subjects import Facts

MB = 1_000_000


@pytest.fixture
def report() -> ModelReport:
    """A run without its speeds."""
    model = BenchModel("tiny", Path("/m.gguf"), 2048, 97, "llama", file_bytes=100 * MB, cache_bytes_per_token=MB // 64)
    report = ModelReport(model, [])
    report.facts = {"cpu": Facts("cpu-avx2", 1.0), "llama-cpp": Facts("llama-cpp-python 0.3", 1.0)}
    report.start = StartReport()
    for seconds in (1.0, 2.0, 3.0):
        report.start.seconds.add(SERVER, COLD, seconds)
    ready, answered = ProcessMemory(150 * MB, 20 * MB, 0, 165 * MB), ProcessMemory(160 * MB, 22 * MB, 0, 175 * MB)
    report.start.memory[COLD] = StartMemory(ready, answered, 128)
    report.busy = BusyReport(64, ["cpu", "llama-cpp"])
    for engine, factor in (("cpu", 1.5), ("llama-cpp", 8.0)):
        for kind in (MEDIAN, MEAN):
            report.busy.seconds.add(ALONE, case_of(engine, kind), 0.004)
            report.busy.seconds.add(BUSY, case_of(engine, kind), 0.004 * factor)
    report.errors = ErrorReport("torch-cpu-float32-2t", notes=["errors: a note"])
    for engine, rms in (("cpu", 0.012), ("llama-cpp", 0.024)):
        report.errors.total[engine] = Errors(rms, 0.5, 0.984375, 0.001)
        for name in PROMPTS:
            report.errors.prompts[engine, name] = Errors(rms, 0.5, 0.984375, 0.001)
    return report


def _line(text: str, start: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(start)).removeprefix(start).split()


def test_start_has_seconds_and_says_which_memory(report: ModelReport):
    text = render_model(report)
    assert _line(text, "to a green /readyz, s") == ["2.00", "[1.00..3.00]"]
    assert _line(text, "ready: RssAnon, MB") == ["150"]
    assert _line(text, "answered: RssFile, MB") == ["22"]
    assert _line(text, "answered: Pss, MB") == ["175"]
    assert _line(text, "answered: beyond file and KV, MB") == ["80"]


def test_busy_has_a_ratio_for_every_engine_beside_the_goal(report: ModelReport):
    text = render_model(report)
    assert _line(text, "cpu-avx2, median") == ["4.00", "6.00", "1.50"]
    assert _line(text, "llama-cpp-python 0.3, mean") == ["4.00", "32.0", "8.00"]
    assert "goal: at most 1.7" in text


def test_errors_stand_side_by_side(report: ModelReport):
    text = render_model(report)
    assert _line(text, "rms, code") == ["0.012", "0.024", "0.500"]
    assert _line(text, "same likeliest token, %") == ["98.4", "98.4"]
    assert "errors: a note" in text


def test_without_speeds_there_is_no_table_of_them(report: ModelReport):
    text = render_model(report)
    assert "tok/s" not in text
    assert "first token" not in text


def test_a_section_that_nothing_came_of_is_shown_as_holes(report: ModelReport):
    report.start = StartReport(notes=["start: memra run ended with 1"])
    report.start.seconds.add(SERVER, COLD, None)
    report.busy = BusyReport(64, ["cpu"], notes=["beside a busy process: cpu: dead"])
    report.errors = ErrorReport("torch")
    text = render_model(report)
    assert _line(text, "to a green /readyz, s") == ["-"]
    assert _line(text, "cpu-avx2, median") == ["-", "-", "-"]
    assert "start: memra run ended with 1" in text
    json.dumps(to_json([report], num_threads=2, fingerprint="f"))


def test_json_has_every_section(report: ModelReport):
    document = json.loads(json.dumps(to_json([report], num_threads=2, fingerprint="f")))
    model = document["models"][0]
    assert model["start"]["seconds"][COLD]["rounds"] == [1.0, 2.0, 3.0]
    assert model["start"]["memory"][COLD]["beyond_bytes"] == 182 * MB - 100 * MB - 128 * (MB // 64)
    assert model["busy"]["ratios"]["cpu, median"]["median"] == pytest.approx(1.5)
    assert model["errors"]["engines"]["llama-cpp"]["rms"] == 0.024
    assert set(model["errors"]["engines"]["cpu"]["prompts"]) == set(PROMPTS)
