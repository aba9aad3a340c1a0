"""`GET /v1/auth/check`: does a key open this server? 204 if so, and else the refusal that any request would get."""

from quart import request
from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.http.generation import FrontDoor
from memra.http.request_headers import read_credentials


def add_auth_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the check; the key comes as it does with requests."""

    @app.get("/v1/auth/check")
    async def auth_check() -> Response:
        await door.house.identify(read_credentials(request.headers))
        return Response(b"", status=204)
