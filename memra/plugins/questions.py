"""What plugins are asked about a request before it runs, and what they may answer."""

from dataclasses import dataclass

from memra.types import Lane, ModelName, RequestId


@dataclass(frozen=True, slots=True)
class AdmissionQuestion:
    """A request that is about to be let in.

    Attributes:
        principal: names the key within the tenant, or None.
        route: path of the API.
        max_tokens: as the client asked; None where it did not say.
    """

    request_id: RequestId
    tenant: str
    principal: str | None
    model: ModelName
    route: str
    lane: Lane
    is_stream: bool
    max_tokens: int | None
    num_choices: int = 1


@dataclass(frozen=True, slots=True)
class Deny:
    """No.

    Attributes:
        message: one sentence for the client.
        status: of HTTP, 400 to 599.
        code: of the error body.
        retry_after_s: seconds after which trying again makes sense, or None.
    """

    message: str
    status: int = 403
    code: str | None = None
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """Yes, but no more than this.

    Attributes:
        max_tokens: of the answer; the smallest of all plugins' and the client's counts.
    """

    max_tokens: int


Verdict = Deny | Limit
