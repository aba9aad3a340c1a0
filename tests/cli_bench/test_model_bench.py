"""The whole command on a real model: every engine that can be used here, and the server."""

import json
from pathlib import Path

import pytest

from memra.chat.tokenizer import build_tokenizer
from memra.cli import main
from memra.cli_bench.error_bench import NUM_POSITIONS
from memra.cli_bench.error_prompts import PROMPTS
from memra.cli_bench.executors import executors
from memra.loading.model_path import open_checkpoint

pytestmark = [pytest.mark.models, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", list(executors()))
def test_a_quick_run_fills_every_figure(name: str, smollm2_path: Path, tmp_path: Path, capsys):
    obstacle = executors()[name].find_obstacle()
    if obstacle is not None:
        pytest.skip(obstacle)
    file = tmp_path / "bench.json"
    sections = ["--served", "--start", "--busy", "--errors"]
    code = main(["bench", "--quick", "-m", f"small={smollm2_path}", "--executor", name, *sections, "--json", str(file)])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "decode 4 rows, tok/s" in out
    model = json.loads(file.read_text(encoding="utf-8"))["models"][0]
    assert set(model["tokens_per_s"][name]) == {"prefill 128", "decode 1 row", "decode 4 rows"}
    assert all(case["median"] > 0 for case in model["tokens_per_s"][name].values())
    assert model["engines"][name]["backend"].startswith(name)
    assert 0 < model["engines"][name]["read_share"] < 3
    assert model["engines"][name]["peak_beyond_bytes"] > 0
    assert model["first_token_s"][name]["first token cold"]["median"] > 0
    assert model["first_token_prompt_tokens"] >= 128
    assert [note for note in model["notes"] if not note.startswith("the server runs on")] == []
    assert set(model["served"]["ratios"]) == {"1 client", "4 clients"}
    assert model["served"]["notes"] == []
    assert model["start"]["seconds"]["start"]["median"] > 0
    assert model["start"]["memory"]["start"]["beyond_bytes"] > 0
    assert model["busy"]["ratios"][f"{name}, median"]["median"] > 0
    assert model["start"]["notes"] == model["busy"]["notes"] == model["errors"]["notes"] == []
    if name != "torch":  # the reference itself
        assert 0 < model["errors"]["engines"][name]["rms"] < 0.5


@pytest.mark.parametrize("fixture", ["smollm2_path", "qwen_path", "gemma_path"])
def test_every_prompt_of_the_errors_is_long_enough(fixture: str, request):
    checkpoint = open_checkpoint(request.getfixturevalue(fixture))
    tokenizer = build_tokenizer(checkpoint.vocabulary)
    for name, text in PROMPTS.items():
        assert len(tokenizer.encode(text, add_special=True, parse_special=True)) > NUM_POSITIONS, name
    checkpoint.close()
