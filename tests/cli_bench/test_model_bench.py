"""The whole command on a real model: every engine that can be used here, and the server."""

import json
from pathlib import Path

import pytest

from memra.cli import main
from memra.cli_bench.executors import executors

pytestmark = [pytest.mark.models, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", list(executors()))
def test_a_quick_run_fills_every_figure(name: str, smollm2_path: Path, tmp_path: Path, capsys):
    obstacle = executors()[name].find_obstacle()
    if obstacle is not None:
        pytest.skip(obstacle)
    file = tmp_path / "bench.json"
    code = main(
        ["bench", "--quick", "-m", f"small={smollm2_path}", "--executor", name, "--served", "--json", str(file)]
    )
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
