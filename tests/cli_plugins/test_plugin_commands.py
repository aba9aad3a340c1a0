"""`memra plugins` and the commands that plugins bring, on the real command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.conftest import put_plugin

REPOSITORY = Path(__file__).parents[2]

PAINTER = """
import sys
from dataclasses import dataclass
from quart import Blueprint
from memra.errors import UsageError
from memra.plugins import Command, hookimpl

@dataclass(frozen=True)
class Config:
    colour: str = "red"

config = None

@hookimpl
def memra_config_schema():
    return Config

@hookimpl
def memra_configure(config):
    globals()["config"] = config

def add_arguments(parser):
    parser.add_argument("wall")

def run(options):
    if options.wall == "north":
        raise UsageError("the north wall is done")
    print("painting", options.wall, config.colour)
    return 4

@hookimpl
def memra_commands():
    return [Command("paint", "paints a wall", add_arguments, run)]

@hookimpl
def memra_blueprints(handles):
    blueprint = Blueprint("painter", __name__)
    blueprint.route("/walls/<wall>", methods=["GET", "POST"])(lambda wall: wall)
    return [blueprint]

@hookimpl
def memra_admin_blueprints(handles):
    blueprint = Blueprint("painter", __name__)
    blueprint.route("/walls")(lambda: "")
    return [blueprint]
"""
THIEF = """
from memra.plugins import Command, hookimpl
@hookimpl
def memra_commands():
    return [Command("doctor", "steals a word", print, print)]
"""


@pytest.fixture
def memra(tmp_path: Path):
    """Run the command line with plugins on its path."""
    put_plugin(tmp_path, "painter", PAINTER)
    put_plugin(tmp_path, "broken", "raise RuntimeError('no ink')")
    put_plugin(tmp_path, "locked", "raise RuntimeError('imported')")
    config = tmp_path / "memra.toml"
    config.write_text('[plugins]\nblocked = ["locked"]\n[plugins.painter]\ncolour = "blue"\n')
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY), str(REPOSITORY / "kernels")])
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MEMRA_")}

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "memra", *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
            env=environ | {"PYTHONPATH": path, "MEMRA_CONFIG": str(config)},
        )

    return run


def test_memra_plugins_lists_names_packages_hooks_routes_and_states(memra):
    rows = {row["name"]: row for row in json.loads(memra("plugins", "--json").stdout)}
    assert rows["painter"] == {
        "name": "painter",
        "distribution": "painter-dist",
        "version": "1.0",
        "state": "loaded",
        "hooks": [
            "memra_admin_blueprints", "memra_blueprints", "memra_commands", "memra_config_schema", "memra_configure",
        ],
        "routes": ["GET /walls/<wall>", "POST /walls/<wall>", "admin GET /walls"],
        "complaints": [],
    }  # fmt: skip
    assert rows["locked"]["state"] == "blocked"
    assert rows["broken"]["state"] == "broken"
    assert rows["broken"]["complaints"] == ["plugin broken (broken-dist 1.0): cannot be imported: no ink"]
    table = memra("plugins").stdout.splitlines()
    assert table[0].split() == ["name", "package", "state", "hooks", "and", "routes"]
    assert any(line.split()[:4] == ["locked", "locked-dist", "1.0", "blocked"] for line in table)


def test_a_plugins_command_runs_with_its_plugin_configured(memra):
    done = memra("paint", "south")
    assert (done.returncode, done.stdout) == (4, "painting south blue\n")
    done = memra("paint", "north")
    assert done.returncode == 2
    assert "memra: the north wall is done" in done.stderr


def test_the_help_names_brought_commands_and_tells_of_broken_plugins(memra):
    done = memra("--help")
    assert "paints a wall" in done.stdout
    assert "memra: plugin broken (broken-dist 1.0): cannot be imported: no ink" in done.stderr


def test_no_plugin_takes_a_word_of_memras_own(memra, tmp_path: Path):
    put_plugin(tmp_path, "thief", THIEF)
    assert "the command 'doctor' is taken" in memra("--help").stderr
    rows = {row["name"]: row for row in json.loads(memra("plugins", "--json").stdout)}
    assert rows["thief"]["state"] == "broken"


def test_own_commands_do_not_wait_for_plugins(memra):
    done = memra("models", "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_start_with_broken_plugins_is_one_line_and_code_two(memra, tmp_path: Path):
    put_plugin(tmp_path, "thief", THIEF)
    done = memra("run")
    lines = [line for line in done.stderr.splitlines() if line.startswith("memra: ")]
    assert (done.returncode, len(lines)) == (2, 1), done.stderr
    for words in (
        "plugin broken (broken-dist 1.0): cannot be imported",
        "plugin thief (thief-dist 1.0): memra_commands",
    ):
        assert words in lines[0]


def test_asking_for_help_with_a_plugin_imports_nothing_heavy(tmp_path: Path):
    put_plugin(tmp_path, "painter", PAINTER.replace("from quart import Blueprint\n", ""))
    check = (
        "import memra.cli, sys; memra.cli._parser(with_plugins=True).format_help();"
        "assert 'painter_dist_module' in sys.modules;"
        "heavy = {'torch', 'numpy', 'trio', 'quart', 'gguf', 'tokenizers'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY), str(REPOSITORY / "kernels")])
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60, env={**os.environ, "PYTHONPATH": path})
