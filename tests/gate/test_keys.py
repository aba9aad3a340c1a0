"""Whose key it is: the order in which keys are asked, and what each refusal says."""

import pytest

from memra.errors import AuthenticationError, ForbiddenError
from memra.gate.key_entry import KeyEntry, digest_of, make_key
from memra.gate.keyring import Keyring
from memra.gate.keys import KeyLaw
from memra.messages.identity import ANYBODY, DEFAULT_TENANT, Identity, KeyClass


def test_an_open_server_takes_everybody():
    assert KeyLaw(None).identify(None) == ANYBODY
    assert KeyLaw(None).identify("anything") == ANYBODY


def test_the_right_key_opens_the_server():
    assert KeyLaw("schlüssel").identify("schlüssel") == ANYBODY


@pytest.mark.parametrize("presented", ["", "Secret", "secret ", "secre", "\udcff", "sécret"])
def test_another_key_is_refused_without_being_repeated(presented: str):
    with pytest.raises(AuthenticationError, match="not valid") as refused:
        KeyLaw("secret").identify(presented)
    assert "secret" not in refused.value.message


def test_a_missing_key_is_answered_with_how_to_send_one():
    for law, keyring in ((KeyLaw("secret"), None), (KeyLaw(None), Keyring())):
        with pytest.raises(AuthenticationError, match="Authorization: Bearer"):
            law.identify(None, keyring)


def test_a_key_of_the_keyring_is_its_tenants():
    made = make_key("acme", key_class=KeyClass.BATCH, rate_limit=3)
    keyring = Keyring([make_key("other").entry, made.entry])
    who = Identity("acme", made.entry.prefix, KeyClass.BATCH, max_inflight=3, is_named=True)
    assert KeyLaw(None).identify(made.text, keyring) == who
    assert KeyLaw("secret").identify(made.text, keyring) == who
    assert made.text not in repr(made) + repr(keyring) + repr(who)


def test_an_empty_keyring_opens_nothing():
    with pytest.raises(AuthenticationError):
        KeyLaw(None).identify("anything", Keyring())


def test_beside_a_keyring_the_single_key_is_the_default_tenants():
    who = KeyLaw("secret").identify("secret", Keyring([make_key("acme").entry]))
    assert (who.tenant, who.principal, who.is_named) == (DEFAULT_TENANT, None, True)


def test_a_disabled_key_is_forbidden_even_where_it_is_the_single_key_too():
    entry = KeyEntry(digest_of("secret"), "acme", "mk-acme-1", is_enabled=False)
    with pytest.raises(ForbiddenError, match="mk-acme-1 is disabled"):
        KeyLaw("secret").identify("secret", Keyring([entry]))
