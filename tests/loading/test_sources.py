import hashlib
import os

import pytest

from memra.errors import SourceError
from memra.loading.sources import parse_source, resolve_source


@pytest.fixture
def resolve(tmp_path):
    return lambda text: resolve_source(parse_source(text), cache_dir=tmp_path / "cache", progress=False)


def test_a_file_or_directory_resolves_to_itself(tmp_path, resolve):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"x")
    assert resolve(str(path)) == path
    assert resolve(str(tmp_path)) == tmp_path
    assert not (tmp_path / "cache").exists()


def test_a_tilde_stands_for_the_home_directory(tmp_path, resolve, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m.gguf").write_bytes(b"x")
    assert resolve("~/m.gguf") == tmp_path / "m.gguf"


def test_a_missing_path_is_named(resolve):
    with pytest.raises(SourceError, match=r"'/no/such/model\.gguf': there is no /no/such/model\.gguf"):
        resolve("/no/such/model.gguf")


def test_a_declared_hash_is_checked(tmp_path, resolve):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"x")
    found = hashlib.sha256(b"x").hexdigest()
    assert resolve(f"{path}#sha256={found}") == path
    with pytest.raises(SourceError, match=f"has SHA-256 {found}"):
        resolve(f"{path}#sha256={'0' * 64}")
    with pytest.raises(SourceError, match="is no file"):
        resolve(f"{tmp_path}#sha256={found}")


@pytest.mark.parametrize("name", ["x" * 300, "nul\x00byte"])
def test_a_path_that_no_file_system_takes_is_named(resolve, name):
    with pytest.raises(SourceError, match="model source"):
        resolve(f"/{name}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_named(tmp_path, resolve):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"x")
    path.chmod(0)
    with pytest.raises(SourceError, match="cannot be read"):
        resolve(f"{path}#sha256={'0' * 64}")
