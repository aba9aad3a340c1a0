"""Request bodies: read within bounds, and turned into a wire schema with one clear sentence when that fails.

Refuses to know what the fields mean. Called by the routes that take a body.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec
import trio
from quart.wrappers import Request
from werkzeug.exceptions import RequestTimeout, UnsupportedMediaType

from memra.errors import BodyTooLargeError, InvalidRequestError
from memra.http.body_admission import BodyAdmission
from memra.http.wire.nesting import check_depth, too_deep
from memra.settings import HttpSettings

THREAD_DECODE_BYTES = 1 << 20
"""Larger bodies are decoded in a thread of their own: 30 MB of short messages take 0.17 s, and streams must go on."""

DISCARD_S = 2.0
"""How long a refused body is read and thrown away, so that its sender is still there to read the refusal."""

IDLE_S = 0.5
"""A sender of a refused body that pauses for longer has likely stopped to read."""

BYTES_PER_EXTRA_S = 2 << 20
"""A body may take one second longer for each of these; a slow uplink needs no more."""

_Schema = TypeVar("_Schema", bound=msgspec.Struct)
_Value = TypeVar("_Value")

_FIELDS: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])


async def read_json(
    request: Request,
    decoder: msgspec.json.Decoder[_Schema],
    *,
    settings: HttpSettings,
    admission: BodyAdmission,
    keep: Callable[[bytes], object] | None = None,
) -> tuple[_Schema, frozenset[str]]:
    """Read a JSON body, while holding a permit for it.

    Args:
        request: whose.
        decoder: of the schema.
        settings: bounds.
        admission: gives permits.
        keep: takes a copy of what was sent, once all of it is here.

    Returns:
        The body, and the names of its fields that the schema does not know.

    Raises:
        BodyBusyError: too many bodies are being read; nothing of this one was.
        BodyTooLargeError: more than `settings.max_body_bytes`; where the head says so, nothing of it was read.
        InvalidRequestError: not JSON, or not of the schema; names the place.
        UnsupportedMediaType: the content type is not JSON, or the body is compressed.
        RequestTimeout: the body did not arrive in time, or paused for too long.
    """
    mimetype = request.mimetype
    if mimetype != "application/json" and not (mimetype.startswith("application/") and mimetype.endswith("+json")):
        raise UnsupportedMediaType("Send the body as JSON, with the header Content-Type: application/json.")
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("Send the body as it is, without Content-Encoding.")
    if (request.content_length or 0) > settings.max_body_bytes:
        raise _too_large(settings)
    async with admission.admit(request.content_length):
        body = await _read(request, settings)
        if keep is not None:
            keep(bytes(body))
        if len(body) > THREAD_DECODE_BYTES:
            return await trio.to_thread.run_sync(_understand, decoder, body)
        return _understand(decoder, body)


async def discard(request: Request) -> None:
    """Throw away what comes of a refused body, for a while; without it the refusal may be lost in a reset connection.

    Holds no more memory than one piece.
    """
    with trio.move_on_after(DISCARD_S), trio.move_on_after(IDLE_S) as idle:
        async for _ in request.body:
            idle.deadline = trio.current_time() + IDLE_S


async def _read(request: Request, settings: HttpSettings) -> bytearray:
    longest_s = _longest(request.content_length, settings)
    body = bytearray()
    with trio.move_on_after(longest_s) as whole, trio.move_on_after(settings.body_idle_s) as idle:
        async for chunk in request.body:
            idle.deadline = trio.current_time() + settings.body_idle_s
            body += chunk
            if len(body) > settings.max_body_bytes:
                raise _too_large(settings)
        return body
    if whole.cancelled_caught:
        raise RequestTimeout(f"The request body did not arrive within {longest_s:g} s.")
    raise RequestTimeout(f"Nothing of the request body came for {settings.body_idle_s:g} s.")


def _longest(num_bytes: int | None, settings: HttpSettings) -> float:
    """Return how long a body may take, seconds; one that does not say how large it is may be of any size."""
    extra_s = (settings.max_body_bytes if num_bytes is None else num_bytes) / BYTES_PER_EXTRA_S
    return min(settings.body_timeout_s + extra_s, 2 * settings.body_timeout_s)


def _too_large(settings: HttpSettings) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"The request body is larger than {settings.max_body_bytes} bytes, which is the limit of this server."
    )


def _understand(decoder: msgspec.json.Decoder[_Schema], body: bytearray) -> tuple[_Schema, frozenset[str]]:
    read = _decode(decoder, body)
    check_depth(read)
    # The values are skipped, not built: a tenth of what decoding costs.
    fields = _decode(_FIELDS, body)
    return read, frozenset(fields).difference(read.__struct_encode_fields__)


def _decode(decoder: msgspec.json.Decoder[_Value], body: bytearray) -> _Value:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _schema_error(str(error)) from error
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error}.") from error
    except RecursionError as error:
        raise too_deep() from error


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
