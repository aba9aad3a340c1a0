"""Builds the native CPU engine beside the Python packages; everything else is in pyproject.toml.

Run by `memra_kernels.build_backend`, which lies on the path by then. Without a compiler the installation succeeds all
the same, and memra runs on torch.
"""

from pathlib import Path

from memra_kernels import build_native
from memra_kernels.compilers import BuildError
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

_PACKAGE = Path(__file__).parent / "kernels" / "memra_kernels"


class BuildNative(build_ext):
    """Compiles the library with the package's own builder, into the place where the package looks for it."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the library's path below the packages' root; it is no extension module and has a plain name."""
        return str(Path(*fullname.split("."))) + ".so"

    def copy_extensions_to_source(self) -> None:
        """Put the library into the source tree for an editable installation."""
        (_PACKAGE / "_native").mkdir(exist_ok=True)
        super().copy_extensions_to_source()

    def build_extension(self, ext: Extension) -> None:
        """Build, or say in one line why not."""
        try:
            build_native.build(target=Path(self.get_ext_fullpath(ext.name)))
        except BuildError as error:
            if not ext.optional:
                raise
            self.announce(f"the native CPU engine was not built, memra will run on torch: {error}", level=3)


setup(
    ext_modules=[Extension("memra_kernels._native.libmemra_cpu", sources=[], optional=True)],
    cmdclass={"build_ext": BuildNative},
)
