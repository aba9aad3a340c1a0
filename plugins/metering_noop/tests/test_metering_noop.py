"""What a plugin author tests first: that memra takes the plugin, and that the hooks do what they say."""

import memra_metering_noop
import pytest

from memra.errors import UsageError
from memra.plugins.manager import Plugins


def test_memra_accepts_every_hook_of_the_plugin():
    plugins = Plugins()
    plugins.register(memra_metering_noop, "metering_noop")
    assert plugins.names == ("metering_noop",)


def test_an_unknown_key_is_refused_by_name():
    with pytest.raises(ValueError, match="colour"):
        memra_metering_noop.memra_configure({"colour": "red"})


def test_the_plugin_loads_from_its_entry_point():
    plugins = Plugins()
    with pytest.raises(UsageError, match=r"\[plugins.metering_noop\]: unknown key 'colour'"):
        plugins.load(blocked=(), tables={"metering_noop": {"colour": "red"}})
