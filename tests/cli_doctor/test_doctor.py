import json
import subprocess
import sys
from importlib.metadata import EntryPoint, PackageNotFoundError
from pathlib import Path

import pytest
from memra_kernels import native

from memra.cli import main
from memra.cli_doctor import findings, memory
from memra.cli_doctor.findings import Cache, find_cache, find_devices, find_native, find_plugins
from memra.cli_doctor.memory import Memory
from memra.settings import EngineSettings

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _small_read_test(monkeypatch) -> None:
    monkeypatch.setattr(memory, "find_memory", lambda: Memory(1 << 26, 1 << 24))


def _without(monkeypatch, package: str) -> None:
    def version(name: str) -> str:
        if name == package:
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(findings, "version", version)


def test_everything_fits_on_one_screen(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 24
    for label in ("memra", "Python", "threads", "read speed", "native CPU", "torch", "device", "cache", "plugins"):
        assert any(line.startswith(label) for line in out.splitlines()), label


def test_json_says_the_same(capsys):
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["fingerprint"].startswith("memra-")
    assert found["processors"]["num_usable"] >= 1
    assert found["read_bytes_per_s"] > 0
    assert found["devices"]["setting"] == "auto"


def test_a_missing_native_library_is_a_finding(monkeypatch, capsys):
    def missing() -> list[str]:
        raise native.NativeUnavailableError("the native CPU engine is not built: do build it")

    monkeypatch.setattr(native, "usable_variants", missing)
    found = find_native()
    assert found.variants == ()
    assert found.obstacle == "the native CPU engine is not built: do build it"
    assert main(["doctor"]) == 0
    assert "not usable: the native CPU engine is not built" in capsys.readouterr().out


def test_missing_torch_is_a_finding(monkeypatch, capsys):
    _without(monkeypatch, "torch")
    assert find_devices(EngineSettings()).torch is None
    assert main(["doctor"]) == 0
    assert "not installed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "num_cuda", "setting", "choice"),
    [
        ("2.13.0+cu130", 2, "auto", "cuda"),
        ("2.13.0+cpu", 2, "auto", "cpu"),
        ("2.13.0", None, "auto", "cpu"),
        ("2.13.0", 0, "auto", "cpu"),
        ("2.13.0+cpu", None, "cuda:1", "cuda:1"),
    ],
)
def test_auto_takes_cuda_only_where_driver_and_torch_have_it(monkeypatch, version, num_cuda, setting, choice):
    monkeypatch.setattr(findings, "version", lambda _: version)
    monkeypatch.setattr(findings, "_count_cuda_devices", lambda: num_cuda)
    assert find_devices(EngineSettings(device=setting)).choice == choice


def test_no_driver_is_no_device():
    assert findings._count_cuda_devices("libno-such-driver.so.1") is None


def test_a_cache_that_does_not_exist_yet_has_the_space_of_its_disk(tmp_path: Path):
    found = find_cache(tmp_path / "not" / "yet")
    assert found.path == str(tmp_path / "not" / "yet")
    assert found.free_bytes
    assert not (tmp_path / "not").exists()


def test_the_users_cache_is_the_default():
    assert isinstance(find_cache(None), Cache)
    assert "memra" in find_cache(None).path


def test_plugins_are_listed_without_being_imported(monkeypatch):
    points = [EntryPoint("zeta", "no_such_module", "memra"), EntryPoint("alpha", "no_such_module", "memra")]
    monkeypatch.setattr(findings, "entry_points", lambda **_: points)
    found = find_plugins(["zeta"])
    assert [(plugin.name, plugin.is_blocked) for plugin in found] == [("alpha", False), ("zeta", True)]


def test_the_doctor_imports_no_torch():
    check = "import memra.cli, sys; memra.cli.main(['doctor']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True, cwd=REPOSITORY, timeout=120, capture_output=True)
