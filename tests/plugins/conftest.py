"""Plugins put on the path as pip would put them there."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Install = Callable[..., None]


def put_plugin(folder: Path, name: str, source: str, *, distribution: str | None = None) -> None:
    """Write a module and the metadata of a package that names it as a plugin."""
    distribution = distribution or f"{name}-dist"
    module = f"{distribution.replace('-', '_')}_module"
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[memra]\n{name} = {module}\n")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install plugins for one test."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(name: str, source: str, *, distribution: str | None = None) -> None:
        put_plugin(tmp_path, name, source, distribution=distribution)

    yield put
    for module in [name for name in sys.modules if name.endswith("_module")]:
        del sys.modules[module]
