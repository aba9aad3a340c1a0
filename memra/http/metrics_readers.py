"""Who may read the counters: they tell of everybody's requests, so they are no tenant's business.

With `MEMRA_METRICS_TOKEN` whoever has that token, and nobody else; without it whoever the server is open to, but for
tenants that share it with others. Refuses to know what is counted. Called by `memra.http.routes.metrics`.
"""

from hashlib import sha256
from hmac import compare_digest

from werkzeug.datastructures import Headers

from memra.errors import AuthenticationError, ForbiddenError
from memra.http.generation import FrontDoor
from memra.http.request_headers import read_credentials


async def check_metrics_reader(door: FrontDoor, headers: Headers) -> None:
    """Let a reader of the counters in.

    Raises:
        AuthenticationError: it shows no token or key, or one that opens nothing here.
        ForbiddenError: what it shows is good for requests alone.
    """
    credentials, token = read_credentials(headers), door.settings.metrics_token
    if token is None:
        if (await door.house.identify(credentials)).is_named:
            raise ForbiddenError("Counters are not shown to tenants; whoever runs the server sets MEMRA_METRICS_TOKEN.")
        return
    if credentials.api_key is None:
        raise AuthenticationError("Counters need a token here; send it as `Authorization: Bearer TOKEN`.")
    if not compare_digest(_digest(credentials.api_key), _digest(token)):
        raise ForbiddenError("This is not the token for counters (MEMRA_METRICS_TOKEN).")


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()
