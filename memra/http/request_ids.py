"""Ids of requests: every answer carries one, so that a client can name what it asks about.

Refuses to know what was asked. Called wherever an answer begins.
"""

import uuid


def new_id(prefix: str = "req", *, separator: str = "-") -> str:
    """Return a new id: the prefix, the separator and 32 hexadecimal digits."""
    return f"{prefix}{separator}{uuid.uuid4().hex}"
