"""Which files are believed, and how they are changed."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from memra.errors import ConfigurationError
from memra.gate import keyring_file
from memra.gate.key_entry import make_key
from memra.gate.keyring_file import add_entry, disable_entry, read_keyring


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    add_entry(path, make_key("acme").entry)
    return path


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(ConfigurationError) as refused:
        read_keyring(path, **options)
    assert refused.value.message.startswith(f"keyring {path}: ")
    return refused.value.message


def test_a_file_that_is_made_is_its_owners_alone(ring: Path):
    assert stat.S_IMODE(ring.stat().st_mode) == 0o600
    assert [entry.tenant for entry in read_keyring(ring).entries] == ["acme"]
    assert [*ring.parent.iterdir()] == [ring]


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o600, 0o640])
def test_a_file_that_no_stranger_can_read_or_change_is_believed(ring: Path, mode: int):
    ring.chmod(mode)
    assert read_keyring(ring).entries


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o700, 0o602, 0o604, 0o650])
def test_a_file_that_others_can_read_or_change_is_refused(ring: Path, mode: int):
    ring.chmod(mode)
    assert f"has mode {mode:04o}" in refusal(ring)


def test_a_link_to_a_file_is_refused(ring: Path, tmp_path: Path):
    link = tmp_path / "link"
    link.symlink_to(ring)
    assert "is a symbolic link" in refusal(link)
    link.unlink()
    link.hardlink_to(ring)
    assert "has several names" in refusal(ring)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "is not a regular file" in refusal(tmp_path / "pipe")
    (tmp_path / "folder").mkdir(mode=0o700)
    assert "is not a regular file" in refusal(tmp_path / "folder")
    assert "cannot be read: No such file" in refusal(tmp_path / "none")


def test_anothers_file_is_refused_but_roots(ring: Path, monkeypatch: pytest.MonkeyPatch):
    owner = ring.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        assert read_keyring(ring).entries
        os.chown(ring, 2000, -1)
        owner = 2000
    assert f"belongs to user {owner}" in refusal(ring)
    assert read_keyring(ring, is_owner_checked=False).entries


def test_a_file_that_is_too_large_or_no_text_is_refused(ring: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keyring_file, "MAX_BYTES", ring.stat().st_size - 1)
    assert "is larger than" in refusal(ring)
    monkeypatch.undo()
    ring.write_bytes(b"\xff")
    assert "is not UTF-8" in refusal(ring)


def test_a_key_is_added_behind_what_stands_there(ring: Path):
    ring.write_text(f"# mine\n{ring.read_text()}# the end")
    ring.chmod(0o640)
    before, made = ring.read_text(), make_key("other", rate_limit=2)
    add_entry(ring, made.entry)
    assert ring.read_text() == f"{before}\n\n{made.entry.to_toml()}"
    assert stat.S_IMODE(ring.stat().st_mode) == 0o640
    assert [entry.tenant for entry in read_keyring(ring).entries] == ["acme", "other"]


def test_a_file_is_as_it_was_when_a_key_cannot_be_added(ring: Path, monkeypatch: pytest.MonkeyPatch):
    before = ring.read_text()
    with pytest.raises(ConfigurationError, match="the key was not added: key 2: is the same key"):
        add_entry(ring, read_keyring(ring).entries[0])
    ring.write_text("[[keys]]\nprefix = 3\n")
    with pytest.raises(ConfigurationError, match="the key was not added: key 1: "):
        add_entry(ring, make_key("x").entry)
    ring.write_text(before)

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigurationError, match="cannot be written: No space left"):
        add_entry(ring, make_key("x").entry)
    assert ring.read_text() == before
    assert [*ring.parent.iterdir()] == [ring]
    with pytest.raises(ConfigurationError, match="its directory cannot be opened"):
        add_entry(ring.parent / "none" / "keys.toml", make_key("x").entry)


def test_a_key_is_disabled_and_all_else_stays_as_it_is_written(ring: Path):
    one, two = make_key("acme"), make_key("other")
    text = f"# first\n{one.entry.to_toml()}  # a remark\n\n{two.entry.to_toml().replace('enabled = true', '')}"
    ring.write_text(text)
    for made in (two, one):
        assert disable_entry(ring, made.entry.prefix) == made.entry
        assert disable_entry(ring, made.entry.prefix) is None
    assert [entry.is_enabled for entry in read_keyring(ring).entries] == [False, False]
    for line in text.splitlines():
        assert line in ring.read_text().splitlines() or line == "enabled = true"
    assert disable_entry(ring, "mk-acme-none") is None


def test_a_file_that_is_written_in_another_way_is_left_alone(ring: Path):
    entry = make_key("acme").entry
    text = f'keys = [{{prefix = "{entry.prefix}", sha256 = "{entry.digest.hex()}", tenant = "acme"}}]\n'
    ring.write_text(text)
    with pytest.raises(ConfigurationError, match="set its enabled = false by hand"):
        disable_entry(ring, entry.prefix)
    assert ring.read_text() == text
