"""Within which bounds cached prefixes are shared: a namespace from who pays and what the client salted.

A pure function; what is cached, and where, is the engine's business. Called from the request's own path.
"""

from memra.gate.keys import DEFAULT_TENANT

_SEPARATOR = "\x1f"
"""Stands in no tenant and no salt."""


def namespace_of(tenant: str, salt: str) -> str:
    """Return the namespace of a request; no two tenants share one, nor do two salts of one tenant."""
    if tenant == DEFAULT_TENANT:
        return salt
    return f"t:{tenant}{_SEPARATOR}{salt}"
