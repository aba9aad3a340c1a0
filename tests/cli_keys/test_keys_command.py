"""What `memra keys` writes, and where."""

import json
import re
from pathlib import Path

import pytest

from memra.cli import main
from memra.gate.keyring_file import read_keyring


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MEMRA_CONFIG", raising=False)
    monkeypatch.setenv("MEMRA_API_KEYS", str(tmp_path / "keys.toml"))
    return tmp_path / "keys.toml"


def test_a_key_is_printed_once_and_only_its_hash_is_kept(path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["keys", "gen", "acme", "--lane", "batch", "--rate-limit", "3"]) == 0
    out, err = capsys.readouterr()
    key = out.removesuffix("\n")
    assert re.fullmatch(r"mk-acme-[0-9a-f]{48}", key)
    entry = read_keyring(path).find(key)
    assert entry is not None
    assert (entry.key_class.value, entry.rate_limit) == ("batch", 3)
    assert entry.prefix in err
    assert key not in err + path.read_text()


def test_a_revoked_key_is_kept_and_disabled(path: Path, capsys: pytest.CaptureFixture[str]):
    main(["keys", "gen", "acme"])
    (entry,) = read_keyring(path).entries
    assert main(["keys", "revoke", entry.prefix]) == 0
    assert not read_keyring(path).entries[0].is_enabled
    capsys.readouterr()
    assert main(["keys", "revoke", entry.prefix]) == 1
    assert "no key" in capsys.readouterr().err


def test_keys_are_listed_without_their_hashes(path: Path, capsys: pytest.CaptureFixture[str]):
    main(["keys", "gen", "acme"])
    main(["keys", "gen", "bulk", "--lane", "batch", "--rate-limit", "2"])
    one, two = read_keyring(path).entries
    capsys.readouterr()
    assert main(["keys", "list"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[:5] for line in table[1:]] == [
        [one.prefix, "acme", "interactive", "-", "enabled"],
        [two.prefix, "bulk", "batch", "2", "enabled"],
    ]
    assert main(["keys", "list", "--json"]) == 0
    out = capsys.readouterr().out
    assert [row["prefix"] for row in json.loads(out)] == [one.prefix, two.prefix]
    assert one.digest.hex() not in out


def test_the_option_names_another_file(path: Path, tmp_path: Path):
    assert main(["keys", "gen", "acme", "--keys", str(tmp_path / "other.toml")]) == 0
    assert not path.exists()
    assert main(["keys", "list", "--keys", str(tmp_path / "other.toml")]) == 0


def test_without_a_file_it_is_a_usage_error_and_what_fails_is_not(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert main(["keys", "list"]) == 1
    assert "No such file" in capsys.readouterr().err
    assert main(["keys", "gen", "a b"]) == 1
    assert main(["keys", "gen", "acme", "--rate-limit", "0"]) == 1
    assert not path.exists()
    monkeypatch.setenv("MEMRA_API_KEYS", f"acme:{'0' * 64}")
    assert main(["keys", "gen", "acme"]) == 2
    monkeypatch.delenv("MEMRA_API_KEYS")
    assert main(["keys", "gen", "acme"]) == 2
    assert "MEMRA_API_KEYS" in capsys.readouterr().err
