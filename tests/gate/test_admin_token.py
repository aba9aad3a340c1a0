"""The token of the admin listener: which files are believed, and what is compared."""

from pathlib import Path

import pytest

from memra.errors import ConfigurationError
from memra.gate.admin_token import MIN_CHARS, AdminToken, read_admin_token

TOKEN = "Zx9-_." * 4


def write(path: Path, text: str = TOKEN, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_admin_token(path)
    return caught.value.message


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_private_file_with_one_token_is_read(tmp_path: Path, mode: int, end: str):
    token = read_admin_token(write(tmp_path / "token", TOKEN + end, mode))
    assert token.matches(TOKEN)
    assert not any(map(token.matches, ("", TOKEN[:-1], TOKEN + "x", f"{TOKEN}\n", "\udc80")))


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604, 0o700])
def test_a_file_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int):
    path = write(tmp_path / "token", mode=mode)
    message = refusal(path)
    assert str(path) in message
    assert "chmod 600" in message


def test_a_symbolic_link_is_refused(tmp_path: Path):
    write(tmp_path / "token")
    (tmp_path / "link").symlink_to(tmp_path / "token")
    assert "symbolic link" in refusal(tmp_path / "link")


def test_a_missing_file_is_named(tmp_path: Path):
    assert "No such file" in refusal(tmp_path / "token")


@pytest.mark.parametrize(
    "text", ["", "two words that are long", f"{TOKEN}\n{TOKEN}", "ünprintable-token-of-20", "\x00" * 20]
)
def test_what_is_no_single_token_is_refused(tmp_path: Path, text: str):
    message = refusal(write(tmp_path / "token", text))
    assert "token" in message
    assert not text.strip() or text.strip() not in message


def test_a_short_token_is_refused(tmp_path: Path):
    assert str(MIN_CHARS) in refusal(write(tmp_path / "token", "a" * (MIN_CHARS - 1)))


def test_a_token_is_not_shown():
    assert TOKEN not in repr(AdminToken(TOKEN)) + str(vars(AdminToken(TOKEN)))
