"""Who may import whom: the house's walls, read from the source, with the offending line in the message."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

SHARED = {"types", "errors", "settings", "messages", "telemetry.names"}
ROOMS: dict[str, set[str]] = {
    "types": set(),
    "errors": {"types"},
    "settings": {"types", "errors", "settings"},
    "lanes": {"types", "errors", "lanes"},
    "messages": {"types", "errors", "messages", "lanes.metrics"},
    "telemetry": SHARED | {"telemetry"},
    "gate": SHARED | {"gate"},
    "chat": SHARED | {"chat"},
    "layers": SHARED | {"layers"},
    "models": SHARED | {"models", "layers"},
    "engine": SHARED | {"engine", "lanes", "models", "layers", "memra_kernels"},
    "loading": SHARED | {"loading", "models"},
    "plugins": SHARED | {"plugins"},
    "actors": SHARED | {"actors", "telemetry", "plugins", "metadata", "gate", "lanes", "chat", "engine"},
    "http": SHARED | {"http", "actors.contract"},
    "memra_kernels": {"memra_kernels"},
    "cli_doctor": SHARED | {"cli_doctor", "engine", "identity", "loading", "memra_kernels"},
    "metadata": SHARED | {"metadata", "plugins.config_schema"},
    "cli_feeds": SHARED | {"cli_feeds", "actors", "engine", "metadata", "plugins", "served_models"},
    "cli_keys": SHARED | {"cli_keys", "gate"},
    "cli_plugins": SHARED | {"cli_plugins", "plugins", "http"},
    "cli_models": SHARED | {"cli_models", "chat", "engine", "layers", "loading", "models", "memra_kernels"},
    "cli_bench": SHARED
    | {"cli_bench", "cli_doctor", "identity", "served_models", "chat", "engine", "layers", "loading", "models"}
    | {"memra_kernels"},
    "cli_bench.front": SHARED | {"cli_bench", "chat", "engine", "gate", "served_models", "actors", "http"},
}
ROOT = {
    "app",
    "engine_start",
    "house",
    "admin_door",
    "cli",
    "identity",
    "served_models",
    "serving_rules",
    "model_terms",
    "__main__",
    "__init__",
}
"""The composition root may import everything."""

LIBRARIES: dict[str, set[str]] = {
    "torch": {"engine", "models", "layers", "loading", "memra_kernels"},
    "jinja2": {"chat"},
    "llguidance": {"chat"},
    "tokenizers": {"chat"},
    "pykka": {"actors", "app"},
    "quart": {"http", "plugins.admin"},
    "quart_trio": {"http"},
    "hypercorn": {"http"},
    "h11": {"http"},
    "h2": {"http"},
    "msgspec": {"http", "metadata", "plugins"},
    "opentelemetry": {"telemetry", "actors.base"},
    "pluggy": {"plugins"},
    "gguf": {"loading", "memra_kernels"},
    "safetensors": {"loading"},
    "huggingface_hub": {"loading"},
}


@dataclass(frozen=True)
class Import:
    where: str
    room: str
    target: str

    def __str__(self) -> str:
        return f"{self.where}: {self.room} imports {self.target}"


def _modules() -> Iterator[tuple[Path, str]]:
    for top, folder in (("memra", REPOSITORY / "memra"), ("memra_kernels", REPOSITORY / "kernels" / "memra_kernels")):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            yield path, top if top == "memra_kernels" else ".".join(parts)


def _targets(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.lineno, node.module or ""
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


IMPORTS = [
    Import(f"{path.relative_to(REPOSITORY)}:{line}", module, target)
    for path, module in _modules()
    for line, target in _targets(path)
]


def _is_inside(module: str, rooms: set[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def test_a_room_imports_only_what_lies_below_it():
    for found in IMPORTS:
        room = found.room.partition(".")[0]
        top, _, inner = found.target.partition(".")
        if room in ROOT or top not in {"memra", "memra_kernels"}:
            continue
        target = inner if top == "memra" else "memra_kernels"
        if not target or target == "__version__":
            continue
        inner_room = ".".join(found.room.split(".")[:2])
        allowed = ROOMS.get(inner_room, ROOMS[room])
        assert _is_inside(target, allowed) or any(
            name.startswith(f"{target}.") and not _names_a_module(found.target) for name in allowed
        ), found


def _names_a_module(target: str) -> bool:
    """Whether a dotted name is a module or one of its attributes, rather than a package on the way to one."""
    return not (REPOSITORY / Path(*target.split("."))).is_dir()


@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_a_library_is_known_only_where_it_belongs(library: str):
    for found in IMPORTS:
        if found.target.partition(".")[0] == library:
            assert _is_inside(found.room, LIBRARIES[library]), found


def test_every_room_of_the_rules_exists_and_every_folder_has_a_rule():
    folders = {path.name for path in (REPOSITORY / "memra").iterdir() if (path / "__init__.py").exists()}
    assert folders <= set(ROOMS)
    assert {room for room in ROOMS if "." not in room and (REPOSITORY / "memra" / room).is_dir()} == folders


def test_every_module_states_its_trade():
    for path, _ in _modules():
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{path}: no module docstring"


@pytest.mark.parametrize(
    "statement",
    [
        "import memra, memra.cli, memra.settings",
        "import memra.cli; memra.cli._parser().format_help()",
        "import memra.messages.work, memra.messages.generation, memra.plugins.manager",
        "import memra.gate, memra.chat.chat_format, memra.actors.bridge, memra.http.app",
        "import memra.lanes.policy, memra.lanes.meter; assert 'trio' not in __import__('sys').modules",
        "import memra.models.registry, memra.loading.sources, memra.loading.checkpoint",
    ],
)
def test_torch_is_not_imported_before_a_model_is_loaded(statement: str):
    check = f"{statement}; import sys; assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", check], check=True, cwd=REPOSITORY, timeout=60)
