"""One function that a request declares as a tool: what must be true of it before templates and grammars see it.

Refuses to know how a model is told of it, and whether its schema can be held to: templating finds that out. Called by
`chat_request` and `responses_request`.
"""

from collections.abc import Mapping
from typing import Any

from memra.errors import InvalidRequestError


def check_function(function: Any, place: str) -> None:
    """Check a declaration; `place` is where it stands in the request, as in `tools[0].function`.

    Raises:
        InvalidRequestError: it has no name, or a field of it is of another kind; names the place.
    """
    if not (isinstance(function, Mapping) and isinstance(function.get("name"), str) and function["name"]):
        raise InvalidRequestError(f"`{place}.name` must be a name.", param="tools")
    if not isinstance(function.get("description"), str | None):
        raise InvalidRequestError(f"`{place}.description` must be text.", param="tools")
    if not isinstance(function.get("parameters"), Mapping | None):
        raise InvalidRequestError(f"`{place}.parameters` must be a JSON schema: an object.", param="tools")
