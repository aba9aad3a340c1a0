"""What the command line says before anything heavy is imported."""

import gc
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memra.cli import main
from memra.cli_plugins.own_commands import OWN_COMMANDS
from memra.errors import ConfigurationError

REPOSITORY = Path(__file__).parents[1]


@pytest.mark.parametrize("command", OWN_COMMANDS)
def test_every_command_explains_itself(command: str, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"memra {command}" in capsys.readouterr().out


def test_the_commands_are_listed(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    listed = out.partition("commands:")[2]
    assert [line.split()[0] for line in listed.splitlines() if re.match(r"    \w", line)] == [*OWN_COMMANDS]


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version_names_the_build(word: str, capsys):
    with pytest.raises(SystemExit) as ended:
        main([word])
    assert ended.value.code == 0
    assert re.fullmatch(r"memra \d+\.\d+\.\d+ \(sources [0-9a-f]{12}\)\n", capsys.readouterr().out)


def test_an_error_is_one_line_and_a_usage_error_is_code_two(capsys):
    assert main(["bench", "--executor", "no-such"]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("memra: ")]
    assert len(lines) == 1
    assert "no-such" in lines[0]


def test_asking_for_help_imports_nothing_heavy():
    check = (
        "import memra.cli, sys; memra.cli._parser().format_help();"
        "heavy = {'torch', 'numpy', 'trio', 'quart', 'gguf', 'tokenizers'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", check], check=True, cwd=REPOSITORY, timeout=60)


def test_a_start_that_fails_leaves_the_collector_on(monkeypatch: pytest.MonkeyPatch):
    seen: list[bool] = []

    def fail(settings: object) -> int:
        seen.append(gc.isenabled())
        raise ConfigurationError("no")

    monkeypatch.setattr("memra.app.run", fail)
    assert main(["run"]) == 1
    assert seen == [False]
    assert gc.isenabled()
