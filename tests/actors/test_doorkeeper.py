"""Who is asked in which order who somebody is."""

from pathlib import Path

import pytest

from memra.actors.doorkeeper import Doorkeeper
from memra.errors import AuthenticationError, ForbiddenError, PluginFaultError
from memra.gate.key_entry import make_key
from memra.gate.keyring_file import add_entry, disable_entry
from memra.gate.keyring_source import CHECK_S, KeyringSource
from memra.gate.keys import KeyLaw
from memra.messages.identity import ANYBODY, Credentials, Identity
from memra.plugins import hookimpl
from memra.plugins.manager import Plugins

THEIRS = Identity("theirs", "them")


async def authenticate(credentials: Credentials) -> Identity | None:
    match credentials.headers.get("x-badge"):
        case "theirs":
            return THEIRS
        case "forged":
            raise AuthenticationError("This badge is forged.")
    return None


async def test_plugins_are_asked_before_the_servers_own_keys():
    keeper = Doorkeeper(KeyLaw("secret"), authenticate=authenticate)
    assert await keeper.identify(Credentials(headers={"x-badge": "theirs"})) == THEIRS
    assert await keeper.identify(Credentials("secret", {"x-badge": "unknown"})) == ANYBODY
    with pytest.raises(AuthenticationError, match="forged"):
        await keeper.identify(Credentials("secret", {"x-badge": "forged"}))
    with pytest.raises(AuthenticationError, match="not valid"):
        await keeper.identify(Credentials("wrong"))


async def test_a_revoked_key_opens_nothing_after_two_seconds(tmp_path: Path):
    path, made, now = tmp_path / "keys.toml", make_key("acme"), 0.0
    add_entry(path, made.entry)
    keeper = Doorkeeper(KeyLaw(None), KeyringSource.of_file(path, clock=lambda: now))
    key = Credentials(made.text)
    assert (await keeper.identify(key)).tenant == "acme"
    disable_entry(path, made.entry.prefix)
    now += CHECK_S
    with pytest.raises(ForbiddenError, match=made.entry.prefix):
        await keeper.identify(key)


class Badges:
    """A plugin that knows its people by a header."""

    @hookimpl
    async def memra_authenticate(self, credentials: Credentials) -> Identity | None:
        match credentials.headers.get("x-badge"):
            case "broken":
                raise LookupError("the list of badges is gone")
            case "nonsense":
                return "theirs"  # type: ignore[return-value]  # what a careless plugin does
        return await authenticate(credentials)


async def test_an_installed_plugin_says_who_somebody_is_and_its_faults_let_nobody_in():
    plugins = Plugins()
    plugins.register(Badges(), "badges")
    keeper = Doorkeeper(KeyLaw(None), authenticate=plugins.authenticate)
    async with plugins.running():
        assert await keeper.identify(Credentials(headers={"x-badge": "theirs"})) == THEIRS
        assert await keeper.identify(Credentials()) == ANYBODY
        for badge in ("broken", "nonsense"):
            with pytest.raises(PluginFaultError):
                await keeper.identify(Credentials(headers={"x-badge": badge}))
        with pytest.raises(AuthenticationError, match="forged"):
            await keeper.identify(Credentials(headers={"x-badge": "forged"}))
