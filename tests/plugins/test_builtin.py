"""What memra itself brings goes through the door of everybody else's plugins."""

import pytest

from memra import __version__
from memra.errors import UsageError
from memra.plugins.builtin import BUILT_IN
from memra.plugins.loading import find_plugins
from memra.plugins.manager import Plugins


def load(**options: object) -> Plugins:
    plugins = Plugins()
    plugins.load(**{"blocked": (), "tables": {}, **options})
    return plugins


def test_they_are_found_as_plugins_of_memra():
    found = {plugin.name: plugin for plugin in find_plugins()}
    for name in BUILT_IN:
        assert found[name].origin == f"{name} (memra {__version__})"
        assert name in load().names


def test_they_can_be_blocked():
    assert not set(load(blocked=tuple(BUILT_IN)).names) & set(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_their_names_are_taken(install, name: str):
    install(name, "")
    with pytest.raises(UsageError, match="2 plugins of this name"):
        load()
    assert name not in load(blocked=(name,)).names


def test_a_table_for_one_that_has_no_settings_is_refused():
    with pytest.raises(UsageError, match=r"plugin admin \(memra .*no settings"):
        load(tables={"admin": {"address": "127.0.0.1:8081"}})
