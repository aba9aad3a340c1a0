"""The doorkeeper: finds out who sends a request, once, in the request's own task.

Plugins are asked first, then the server's own keys. Both may take time, a plugin for a look-up of its own and the keys
for a look at their file, so this is no actor's business: nobody waits for another's answer. The law is
`memra.gate.keys`'; here is only who is asked in which order. Trio thread only; called by the bridge.
"""

from collections.abc import Awaitable, Callable

import trio

from memra.gate.keyring import Keyring
from memra.gate.keyring_source import KeyringSource
from memra.gate.keys import KeyLaw
from memra.messages.identity import Credentials, Identity

Authenticate = Callable[[Credentials], Awaitable[Identity | None]]


class Doorkeeper:
    """One per server."""

    def __init__(
        self, law: KeyLaw, keyring: KeyringSource | None = None, *, authenticate: Authenticate | None = None
    ) -> None:
        """Take whom to ask.

        Args:
            law: knows the server's single key.
            keyring: keys of tenants, or None.
            authenticate: asks plugins, which answer None where it is not theirs to say.
        """
        self._law = law
        self._keyring = keyring
        self._authenticate = authenticate

    async def identify(self, credentials: Credentials) -> Identity:
        """Return who presents something.

        Raises:
            AuthenticationError: nothing was presented, or nothing that opens this server.
            ForbiddenError: it is known, and opens nothing any more.
            RequestError: a plugin that is asked failed.
        """
        if self._authenticate is not None:
            identity = await self._authenticate(credentials)
            if identity is not None:
                return identity
        return self._law.identify(credentials.api_key, await self._fresh_keyring())

    async def _fresh_keyring(self) -> Keyring | None:
        source = self._keyring
        if source is None:
            return None
        if source.is_due():
            await trio.to_thread.run_sync(source.refresh)
        return source.keyring
