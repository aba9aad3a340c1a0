import pytest

from memra.errors import AuthenticationError
from memra.gate.keys import DEFAULT_TENANT, KeyCheck


def test_an_open_server_takes_everybody():
    assert KeyCheck(None).identify(None) == DEFAULT_TENANT
    assert KeyCheck(None).identify("anything") == DEFAULT_TENANT


def test_the_right_key_opens_the_server():
    assert KeyCheck("schlüssel").identify("schlüssel") == DEFAULT_TENANT


@pytest.mark.parametrize("presented", ["", "Secret", "secret ", "secre", "\udcff", "sécret"])
def test_another_key_is_refused_without_being_repeated(presented: str):
    with pytest.raises(AuthenticationError, match="not valid") as refused:
        KeyCheck("secret").identify(presented)
    assert "secret" not in refused.value.message


def test_a_missing_key_is_answered_with_how_to_send_one():
    with pytest.raises(AuthenticationError, match="Authorization: Bearer"):
        KeyCheck("secret").identify(None)
