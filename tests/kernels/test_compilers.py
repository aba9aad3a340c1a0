"""Which compiler is taken, what a build asks the package index for, and what is said where there is none."""

from pathlib import Path

import pytest
from memra_kernels import build_backend, compilers
from memra_kernels.compilers import BuildError, Compiler


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def _program(folder: Path, name: str, *, status: int) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{name} 99.1 (made up)'\nexit {status}\n")
    path.chmod(0o755)


def test_without_a_compiler_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compilers, "find_spec", lambda _: None)
    assert compilers.system_compiler() is None
    with pytest.raises(BuildError, match=r"no C\+\+ compiler found: install g\+\+ 12 .* ziglang"):
        compilers.find_compiler()


def test_a_compiler_that_cannot_build_is_passed_over(tmp_path: Path):
    _program(tmp_path, "c++", status=1)
    _program(tmp_path, "clang++", status=0)
    assert compilers.system_compiler() == Compiler(("clang++",), "clang++ 99.1 (made up)")


def test_a_compiler_that_is_named_is_taken_or_nothing_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    _program(tmp_path, "c++", status=0)
    _program(tmp_path, "mine", status=0)
    monkeypatch.setenv("CXX", "mine --fast")
    assert compilers.find_compiler().command == ("mine", "--fast")
    monkeypatch.setenv("CXX", "absent")
    with pytest.raises(BuildError, match="CXX=absent does not build"):
        compilers.find_compiler()


def test_a_failed_call_holds_the_compilers_words(tmp_path: Path):
    path = tmp_path / "sour"
    path.write_text("#!/bin/sh\necho no taste for $1 >&2\nexit 3\n")
    path.chmod(0o755)
    with pytest.raises(BuildError, match="sour 1 failed:\nno taste for -sweet"):
        Compiler((str(path),), "sour 1", spellings={"-sour": "-sweet"}).run("-sour")


def test_a_build_asks_for_a_compiler_only_where_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for ask in (build_backend.get_requires_for_build_wheel, build_backend.get_requires_for_build_editable):
        monkeypatch.setattr(build_backend.platform, "machine", lambda: "x86_64")
        assert build_backend.ZIG in ask()
        monkeypatch.setattr(build_backend.platform, "machine", lambda: "vax")
        assert build_backend.ZIG not in ask()
    monkeypatch.setattr(build_backend.platform, "machine", lambda: "aarch64")
    _program(tmp_path, "g++", status=0)
    assert build_backend.ZIG not in build_backend.get_requires_for_build_wheel()


def test_whoever_names_a_compiler_is_given_no_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build_backend.platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("CXX", "false")
    assert build_backend.ZIG not in build_backend.get_requires_for_build_wheel()
