"""The body of `POST /v1/cancel`. Read by `memra.http.routes.cancel`."""

import msgspec


class CancelBody(msgspec.Struct):
    """The whole body; `request_id` is another name of `id`."""

    id: str | None = None
    request_id: str | None = None


DECODER = msgspec.json.Decoder(CancelBody)
