"""The words in which a field's value is refused.

Refuses to know the fields. Called by the other modules of `memra.http.wire`, with the place of the value: a field, or a
path into it such as `reasoning.effort`, of which the error's `param` is the field.
"""

from typing import NoReturn

from memra.errors import InvalidRequestError


def refuse(place: str, rule: str) -> NoReturn:
    """Refuse a value: "`place` must be ..."."""
    raise InvalidRequestError(f"`{place}` must be {rule}.", param=field_of(place))


def refuse_unsupported(place: str, remedy: str = "leave it out") -> NoReturn:
    """Refuse what this server does not support."""
    raise InvalidRequestError(f"`{place}` is not supported by this server; {remedy}.", param=field_of(place))


def field_of(place: str) -> str:
    """Return the field of the request that a place lies in."""
    return place.partition(".")[0]
