"""Request bodies: read within bounds, and turned into a wire schema with one clear sentence when that fails.

Refuses to know what the fields mean. Called by the routes that take a body.
"""

from typing import TypeVar

import msgspec
import trio
from quart.wrappers import Request
from werkzeug.exceptions import RequestTimeout, UnsupportedMediaType

from memra.errors import BodyTooLargeError, InvalidRequestError
from memra.http.body_admission import BodyAdmission
from memra.settings import HttpSettings

THREAD_DECODE_BYTES = 1 << 20
"""Larger bodies are decoded in a thread of their own: 30 MB of short messages take 0.17 s, and streams must go on."""

DISCARD_S = 2.0
"""How long a refused body is read and thrown away, so that its sender is still there to read the refusal."""

IDLE_S = 0.5
"""A sender of a refused body that pauses for longer has likely stopped to read."""

_Schema = TypeVar("_Schema", bound=msgspec.Struct)


async def read_json(
    request: Request,
    decoder: msgspec.json.Decoder[_Schema],
    *,
    settings: HttpSettings,
    admission: BodyAdmission,
) -> _Schema:
    """Read a JSON body, while holding a permit for it.

    Raises:
        BodyBusyError: too many bodies are being read; nothing of this one was.
        BodyTooLargeError: more than `settings.max_body_bytes`.
        InvalidRequestError: not JSON, or not of the schema; names the place.
        UnsupportedMediaType: the content type is not JSON.
        RequestTimeout: the body did not arrive in time.
    """
    mimetype = request.mimetype
    if mimetype != "application/json" and not (mimetype.startswith("application/") and mimetype.endswith("+json")):
        raise UnsupportedMediaType("Send the body as JSON, with the header Content-Type: application/json.")
    async with admission.admit(request.content_length):
        body = await _read(request, settings)
        if len(body) > THREAD_DECODE_BYTES:
            return await trio.to_thread.run_sync(_decode, decoder, body)
        return _decode(decoder, body)


async def discard(request: Request) -> None:
    """Throw away what comes of a refused body, for a while; without it the refusal may be lost in a reset connection.

    Holds no more memory than one piece.
    """
    with trio.move_on_after(DISCARD_S), trio.move_on_after(IDLE_S) as idle:
        async for _ in request.body:
            idle.deadline = trio.current_time() + IDLE_S


async def _read(request: Request, settings: HttpSettings) -> bytearray:
    limit = settings.max_body_bytes
    body = bytearray()
    with trio.move_on_after(settings.body_timeout_s):
        async for chunk in request.body:
            body += chunk
            if len(body) > limit:
                break
        else:
            return body
    if len(body) <= limit:
        raise RequestTimeout(f"The request body did not arrive within {settings.body_timeout_s:g} s.")
    raise BodyTooLargeError(f"The request body is larger than {limit} bytes, which is the limit of this server.")


def _decode(decoder: msgspec.json.Decoder[_Schema], body: bytearray) -> _Schema:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _schema_error(str(error)) from error
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error}.") from error
    except RecursionError as error:
        raise InvalidRequestError("The body is nested too deeply.") from error


def _schema_error(detail: str) -> InvalidRequestError:
    """Turn msgspec's "Expected X, got Y - at `$.field[0].x`" into a sentence that begins with the place."""
    problem, _, place = detail.partition(" - at `$")
    path = place.rstrip("`").lstrip(".")
    if not path and "missing required field" in problem:
        field = problem.rsplit("`", 2)[1]
        return InvalidRequestError(f"`{field}` is required.", param=field)
    if not path:
        return InvalidRequestError(f"The body must be a JSON object: {problem[:1].lower()}{problem[1:]}.")
    param = path.replace("[", ".").split(".", 1)[0]
    return InvalidRequestError(f"`{path}`: {problem[:1].lower()}{problem[1:]}.", param=param)
