"""Within which bounds cached prefixes are shared: a namespace from who pays and what the client salted.

A pure function; what is cached, and where, is the engine's business. Called from the request's own path.
"""

from memra.messages.identity import DEFAULT_TENANT, Identity

_SEPARATOR = "\x1f"
"""Stands in no tenant and no salt."""


def namespace_of(identity: Identity, salt: str) -> str:
    """Return the namespace of a request; no two tenants share one, nor do two salts of one tenant.

    A salt never holds a colon, so no client of an open server can name a tenant's namespace.
    """
    if identity.tenant == DEFAULT_TENANT and not identity.is_named:
        return salt
    return f"t:{identity.tenant}{_SEPARATOR}{salt}"
