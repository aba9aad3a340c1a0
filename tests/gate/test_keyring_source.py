"""When a keyring is read again, and what happens when it cannot be."""

import logging
from pathlib import Path

import pytest

from memra.errors import ConfigurationError
from memra.gate.key_entry import make_key
from memra.gate.keyring_file import add_entry, disable_entry
from memra.gate.keyring_source import CHECK_S, KeyringSource, open_keyring


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    add_entry(tmp_path / "keys.toml", make_key("acme").entry)
    return tmp_path / "keys.toml"


def num_keys(source: KeyringSource | None) -> int:
    assert source is not None
    return len(source.keyring.entries)


def test_a_file_is_due_every_two_seconds_and_for_one_asker_alone(path: Path):
    clock = Clock()
    source = KeyringSource.of_file(path, clock=clock)
    assert not source.is_due()
    clock.now += CHECK_S
    assert [source.is_due(), source.is_due()] == [True, False]


def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(path: Path):
    source = KeyringSource.of_file(path)
    first = source.keyring
    source.refresh()
    assert source.keyring is first
    disable_entry(path, first.entries[0].prefix)
    add_entry(path, make_key("other").entry)
    source.refresh()
    assert [entry.is_enabled for entry in source.keyring.entries] == [False, True]


def test_a_broken_file_keeps_the_old_keys_and_says_so_once(path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="memra.gate.keyring_source")
    source = KeyringSource.of_file(path)
    good = path.read_text()
    for breaking in (lambda: path.write_text("[[keys"), lambda: path.chmod(0o644), path.unlink):
        caplog.clear()
        breaking()
        for _ in range(3):
            source.refresh()
        assert num_keys(source) == 1
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert str(path) in caplog.text
    caplog.clear()
    path.touch(mode=0o600)
    path.write_text(good + make_key("other").entry.to_toml())
    source.refresh()
    assert num_keys(source) == 2
    assert "was read again: 2 keys" in caplog.text


def test_a_setting_names_a_file_or_holds_the_keys(path: Path):
    assert open_keyring(None) is None
    assert num_keys(open_keyring(str(path))) == 1
    source = open_keyring(f"acme:{'0' * 64}")
    assert num_keys(source) == 1
    assert source is not None
    assert not source.is_due()


@pytest.mark.parametrize(
    ("value", "complaint"),
    [("none.toml", "there is no file none.toml"), ("acme:xyz", "MEMRA_API_KEYS: key 1: sha256 must be")],
)
def test_a_setting_that_is_neither_is_refused(value: str, complaint: str):
    with pytest.raises(ConfigurationError, match=complaint):
        open_keyring(value)


def test_a_link_is_no_way_around_the_rules_of_files(path: Path, tmp_path: Path):
    (tmp_path / "a:b").symlink_to(path)
    with pytest.raises(ConfigurationError, match="symbolic link"):
        open_keyring(str(tmp_path / "a:b"))
