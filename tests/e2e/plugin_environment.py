"""A virtual environment with plugins in it, made by pip, in which the real program runs."""

import os
import subprocess
import sys
import venv
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
INSTALL_LIMIT_S = 120


class PluginEnvironment:
    """An environment of its own that sees this one's packages; what is installed into it stays in it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        shared = [str(REPOSITORY), str(REPOSITORY / "kernels"), *(path for path in sys.path if "site-packages" in path)]
        (site / "shared.pth").write_text("\n".join(shared))

    @property
    def environ(self) -> dict[str, str]:
        """The variables of a process in it: nothing of the caller's own settings and paths."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MEMRA_", "PYTHON"))}
        return kept | {"PYTHONUNBUFFERED": "1"}

    def install(self, package: Path) -> None:
        """Install a package as a user would, but from what is here."""
        pip = [self.python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, package], check=True, timeout=INSTALL_LIMIT_S, env=self.environ)

    def run(self, *words: str, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run `memra` in it."""
        return subprocess.run(
            [self.python, "-m", "memra", *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=INSTALL_LIMIT_S,
            cwd=cwd,
            env=self.environ | variables,
        )
