"""An environment of its own for each client that is not ours, since what they depend on does not go together.

Made from the package indexes by `pip` and `npm`, and kept in the user's cache until its recipe changes. Refuses to know
what a client is asked to do. Called by `tests.e2e.test_other_clients`.
"""

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from memra.loading.cache import default_cache_dir
from tests.assets import UnavailableAssetError

INSTALL_LIMIT_S = 600
STAMP = "recipe.txt"


def python_with(name: str, *requirements: str) -> Path:
    """Return the interpreter of a virtual environment that holds the requirements.

    Raises:
        UnavailableAssetError: they cannot be installed here.
    """

    def make(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *requirements])

    recipe = f"{sys.executable} {sys.version}\n{' '.join(requirements)}\n"
    return _kept(name, recipe, make) / "bin" / "python"


def folder_with_node_modules(name: str, *packages: str) -> Path:
    """Return a folder beside whose `node_modules` a script finds the packages.

    Raises:
        UnavailableAssetError: there is no Node here, or they cannot be installed.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise UnavailableAssetError(f"{program} is not installed")

    def make(folder: Path) -> None:
        folder.mkdir()
        (folder / "package.json").write_text('{"private": true}\n')
        _run(["npm", "install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", *packages])

    return _kept(name, " ".join(packages), make)


def _kept(name: str, recipe: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of that name, made anew where it is not what the recipe says; other processes wait."""
    root = default_cache_dir() / "test-clients"
    root.mkdir(parents=True, exist_ok=True)
    folder = root / name
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / STAMP
        if not (stamp.exists() and stamp.read_text() == recipe):
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            stamp.write_text(recipe)
    return folder


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except subprocess.CalledProcessError as error:
        raise UnavailableAssetError(f"{' '.join(command)} failed: {error.stderr[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise UnavailableAssetError(str(error)) from error
