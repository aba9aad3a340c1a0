"""`GET /openapi.json`: all public routes, requests and answers, for programs that make clients and for people."""

from quart.wrappers import Response
from quart_trio import QuartTrio

from memra.http.generation import FrontDoor
from memra.http.openapi.document import make_document


def add_openapi_routes(app: QuartTrio, door: FrontDoor) -> None:
    """Add the document, which is made here, once; it is the same whatever stands behind the door."""
    del door
    document = make_document()

    @app.get("/openapi.json")
    async def openapi() -> Response:
        return Response(document, content_type="application/json")
