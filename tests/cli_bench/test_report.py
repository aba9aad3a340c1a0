import json
from pathlib import Path

import pytest

from memra.cli_bench.bench_request import BenchModel
from memra.cli_bench.cases import DecodeCase, PrefillCase
from memra.cli_bench.model_report import COLD, WARM, ModelReport
from memra.cli_bench.report_json import to_json
from memra.cli_bench.report_text import read_share, render_model
from memra.cli_bench.served_bench import BARE, SERVED, ServedReport
from memra.cli_bench.streams import StreamReport
from memra.cli_bench.subjects import Facts


@pytest.fixture
def report() -> ModelReport:
    cases = [PrefillCase(512), DecodeCase(1, 0, 64), DecodeCase(4, 0, 64)]
    model = BenchModel("tiny", Path("/models/tiny.gguf"), 2048, 97, "llama, Q4_1, 98 MB")
    report = ModelReport(model, cases, skipped=[DecodeCase(1, 8192, 64)])
    report.facts = {
        "cpu": Facts("cpu-avx2", 1.5, 100_000_000, 90_000_000, 1024, 300_000_000, 150_000_000),
        "llama-cpp": Facts("llama-cpp-python 0.3.36", 0.5),
    }
    for factor in (1.0, 2.0, 3.0):
        for case in cases:
            report.rates.add("cpu", case.label, 100 * factor)
            report.rates.add("llama-cpp", case.label, 50.0)
        report.read_rates.append(36e9)
        report.first_tokens.add("cpu", COLD, 0.25)
        report.first_tokens.add("cpu", WARM, 0.02)
    report.first_prompt_tokens = 515
    return report


def _line(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


def test_the_table_has_medians_ends_and_ratios(report: ModelReport):
    line = _line(render_model(report), "decode 4 rows, tok/s")
    assert line.split() == ["decode", "4", "rows,", "tok/s", "200", "[100..300]", "50.0", "4.00", "[2.00..6.00]"]


def test_the_share_of_the_memory_is_that_of_one_row(report: ModelReport):
    assert read_share(report, "cpu") == pytest.approx(200 * 90e6 / 36e9)
    assert _line(render_model(report), "1 row reads").split()[-2:] == ["50", "12"]


def test_a_warm_first_token_is_not_claimed_without_prefix_reuse(report: ModelReport):
    text = render_model(report)
    assert "not available yet" in _line(text, "first token warm")
    assert "20.0" not in _line(text, "first token warm")
    report.has_prefix_reuse = True
    assert "20.0" in _line(render_model(report), "first token warm")


def test_what_was_left_out_and_what_failed_is_said(report: ModelReport):
    report.notes.append("decode 4 rows: llama-cpp: was ended by SIGSEGV")
    text = render_model(report)
    assert "decode 1 row at 8192: left out, longer than the context of 2048 tokens" in text
    assert "was ended by SIGSEGV" in text


def test_served_says_which_client_ran(report: ModelReport):
    report.served = ServedReport("Python threads")
    for rate in (80.0, 90.0):
        report.served.rates.add(BARE, "4 clients", 100.0)
        report.served.rates.add(SERVED, "4 clients", rate)
    report.served.streams[SERVED, "4 clients"] = StreamReport(90.0, 256, 55.0, None)
    text = render_model(report)
    assert _line(text, "4 clients").split() == [
        "4",
        "clients",
        "100",
        "85.0",
        "[80.0..90.0]",
        "0.850",
        "[0.800..0.900]",
        "55.0",
        "-",
    ]
    assert _line(text, "geometric mean").split() == ["geometric", "mean", "0.850"]
    assert "load client: Python threads (no C++ compiler" in text


def test_json_has_every_round(report: ModelReport):
    report.served = ServedReport("compiled")
    report.served.rates.add(BARE, "1 client", 100.0)
    report.served.rates.add(SERVED, "1 client", 90.0)
    document = json.loads(json.dumps(to_json([report], num_threads=2, fingerprint="memra-0-0")))
    model = document["models"][0]
    assert document["format"] == 1
    assert model["tokens_per_s"]["cpu"]["decode 1 row"] == {
        "rounds": [100.0, 200.0, 300.0],
        "median": 200.0,
        "low": 100.0,
        "high": 300.0,
    }
    assert model["ratios"]["cpu / llama-cpp"]["prefill 512"]["median"] == 4.0
    assert model["engines"]["cpu"]["peak_beyond_bytes"] == 150_000_000
    assert model["engines"]["llama-cpp"]["peak_bytes"] is None
    assert model["memory_read_bytes_per_s"] == [36e9] * 3
    assert model["served"]["mean_ratio"] == pytest.approx(0.9)
    assert model["skipped"] == ["decode 1 row at 8192"]
