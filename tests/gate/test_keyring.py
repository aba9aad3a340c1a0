"""What a keyring may say, and that it is taken whole or refused whole."""

import re
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memra.errors import ConfigurationError
from memra.gate.key_entry import KeyEntry, digest_of, make_key
from memra.gate.keyring import Keyring, parse_inline, parse_keyring
from memra.messages.identity import KeyClass

HEX = sha256(b"key").hexdigest()


def written(**changes: Any) -> str:
    """One entry of a file; a value is TOML, None leaves the field out."""
    fields: dict[str, Any] = {"prefix": '"mk-acme-1"', "sha256": f'"{HEX}"', "tenant": '"acme"', **changes}
    return "[[keys]]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items() if value is not None)


def test_a_new_key_has_a_public_beginning_and_a_secret_rest():
    made = make_key("acme")
    assert re.fullmatch(r"mk-acme-[0-9a-f]{48}", made.text)
    assert made.entry.prefix == made.text[: len("mk-acme-") + 12]
    assert made.entry.digest == sha256(made.text.encode()).digest()
    assert make_key("acme").text != made.text


def test_what_is_left_out_has_its_default():
    assert parse_keyring(written()).entries == (KeyEntry(bytes.fromhex(HEX), "acme", "mk-acme-1"),)
    assert parse_keyring("").entries == ()


def test_every_field_is_read():
    text = written(lane='"batch"', enabled="false", rate_limit=7, created_unix=1700000000)
    (entry,) = parse_keyring(text).entries
    assert (entry.key_class, entry.is_enabled, entry.rate_limit) == (KeyClass.BATCH, False, 7)
    assert entry.created_unix == 1700000000


@given(
    key_class=st.sampled_from(KeyClass),
    is_enabled=st.booleans(),
    rate_limit=st.none() | st.integers(1, 10**6),
    created_unix=st.none() | st.integers(0, 2**40),
)
def test_an_entry_is_read_as_it_was_written(
    *, key_class: KeyClass, is_enabled: bool, rate_limit: int | None, created_unix: int | None
):
    entry = KeyEntry(digest_of("key"), "a-c_1", "mk-a-c_1-0", key_class, is_enabled, rate_limit, created_unix)
    assert parse_keyring(entry.to_toml()).entries == (entry,)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"sha256": None}, "key 1: sha256 must be"),
        ({"sha256": f'"{HEX[1:]}"'}, "sha256 must be"),
        ({"sha256": f'"{HEX[1:]}g"'}, "sha256 must be"),
        ({"tenant": None}, "tenant must be"),
        ({"tenant": '"a b"'}, "tenant must be"),
        ({"tenant": '"a\\u001fb"'}, "tenant must be"),
        ({"tenant": '"t:a"'}, "tenant must be"),
        ({"tenant": '"a\\n"'}, "tenant must be"),
        ({"tenant": f'"{"a" * 65}"'}, "tenant must be"),
        ({"prefix": None}, "prefix must be"),
        ({"prefix": '"mk-acme-\\u000a"'}, "prefix must be"),
        ({"prefix": f'"mk-{"a" * 64}-{"0" * 48}"'}, "prefix must be"),
        ({"lane": '"judge"'}, "lane must be interactive or batch"),
        ({"enabled": '"yes"'}, "enabled must be true or false"),
        ({"rate_limit": 0}, "rate_limit must be a whole number from 1"),
        ({"rate_limit": "true"}, "rate_limit must be a whole number"),
        ({"rate_limit": "1.5"}, "rate_limit must be a whole number"),
        ({"created_unix": -1}, "created_unix must be"),
        ({"note": '"x"'}, "'note' is no field of a key"),
    ],
)
def test_one_bad_entry_refuses_the_whole_ring(changes: dict[str, Any], complaint: str):
    good = make_key("acme").entry.to_toml()
    with pytest.raises(ConfigurationError, match=re.escape(complaint)) as refused:
        parse_keyring(written(**changes) + good)
    assert HEX not in refused.value.message


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("keys = 3", "must be written as"),
        ("keys = [3]", "key 1: is not a table"),
        ("[other]\nx = 1\n[[keys]]\n", "'other' is no part of a keyring"),
        ("[[keys]", "not valid TOML"),
    ],
)
def test_what_is_no_keyring_is_refused(text: str, complaint: str):
    with pytest.raises(ConfigurationError, match=re.escape(complaint)):
        parse_keyring(text)


def test_the_same_key_twice_refuses_the_whole_ring():
    text = written() + written(prefix='"mk-other-1"', tenant='"other"', sha256=f'"{HEX.upper()}"')
    with pytest.raises(ConfigurationError, match="key 2: is the same key as mk-acme-1"):
        parse_keyring(text)


def test_keys_may_be_written_out_in_one_line():
    other = sha256(b"other").hexdigest()
    one, two = parse_inline(f"acme:{HEX}, bulk:{other}:batch").entries
    assert (one.tenant, one.key_class, one.prefix) == ("acme", KeyClass.INTERACTIVE, f"sha256-{HEX[:12]}")
    assert (two.tenant, two.key_class) == ("bulk", KeyClass.BATCH)


@pytest.mark.parametrize("text", ["acme:", "acme", f"acme:{HEX}:batch:x", f"acme:{HEX}:judge", f"acme:{HEX},", ":"])
def test_a_bad_line_of_keys_is_refused(text: str):
    with pytest.raises(ConfigurationError, match=r"key \d: "):
        parse_inline(text)


def test_only_the_whole_key_is_found():
    made = make_key("acme")
    ring = Keyring([made.entry, make_key("other").entry])
    assert ring.find(made.text) is made.entry
    others = [
        "",
        made.text[:-1],
        f"{made.text} ",
        made.entry.prefix,
        made.text.upper(),
        made.entry.digest.hex(),
        "\udcff",
    ]
    assert [ring.find(other) for other in others] == [None] * len(others)
