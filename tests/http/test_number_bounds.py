"""Whatever number a client sends, it is refused by name or safe for the engine's arithmetic."""

import math
import struct
from collections.abc import Callable
from dataclasses import astuple

from hypothesis import example, given
from hypothesis import strategies as st

from memra.errors import InvalidRequestError
from memra.http.request_body import _decode
from memra.http.request_headers import Caller
from memra.http.wire import chat_request, completion_request
from memra.messages.generation import GenerationRequest, TokenPrompt
from memra.types import Lane, RequestId

FLOATS = ("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty")
COUNTS = ("top_k", "seed", "max_tokens", "max_completion_tokens")
MAX_LOGIT = 1e4
"""Larger than any model's."""

MAX_WINDOW = 1 << 20
"""Tokens that a penalty may count; more than any context."""


def digits(number: int) -> str:
    """The decimal text of an integer of any length; Python refuses to write more than 4300 digits."""
    if abs(number) < 10**4000:
        return str(number)
    return ("-" if number < 0 else "") + "9" * 5000


edges = st.sampled_from([2**31, 2**32, 2**53, 2**63, 2**64, 10**30, 10**400, 10**5000])
integers = st.integers() | st.builds(
    lambda edge, step, sign: sign * (edge + step), edges, st.integers(-1, 1), st.sampled_from([-1, 1])
)
decimals = st.builds("{}e{}".format, st.integers(-99, 99), st.integers(-500, 500))
numbers = integers.map(digits) | st.floats(allow_nan=False, allow_infinity=False).map(repr) | decimals


def read_chat(field: str, literal: str) -> GenerationRequest:
    body = f'{{"model":"m","messages":[{{"role":"user"}}],"{field}":{literal}}}'
    decoded = _decode(chat_request.DECODER, bytearray(body, "ascii"))
    return chat_request.read_chat_request(decoded, request_id=RequestId("r"), caller=Caller(Lane.INTERACTIVE))


def read_completion(field: str, literal: str) -> GenerationRequest:
    body = f'{{"model":"m","prompt":"x","{field}":[{literal}]}}'
    decoded = _decode(completion_request.DECODER, bytearray(body, "ascii"))
    return completion_request.read_completion_request(
        decoded, request_id=RequestId("r"), caller=Caller(Lane.INTERACTIVE)
    )


def read(
    reader: Callable[[str, str], GenerationRequest], field: str, literal: str
) -> GenerationRequest | InvalidRequestError:
    try:
        return reader(field, literal)
    except InvalidRequestError as error:
        return error


def float32(number: float) -> float:
    """The nearest float32; an OverflowError where there is none."""
    return struct.unpack("f", struct.pack("f", number))[0]


def check_arithmetic(request: GenerationRequest) -> None:
    sampling = request.sampling
    numbers = [value for value in astuple(sampling) if isinstance(value, (int, float))]
    assert all(math.isfinite(float32(float(value))) for value in [*numbers, *dict(sampling.logit_bias).values()])
    assert sampling.temperature >= 0.0
    assert math.isfinite(float32(MAX_LOGIT * float32(sampling.repetition_penalty)))
    assert math.isfinite(float32(MAX_LOGIT / float32(sampling.repetition_penalty)))
    assert math.isfinite(float32(MAX_WINDOW * sampling.frequency_penalty + sampling.presence_penalty))
    assert 0 <= sampling.top_k < 2**31
    assert 0 <= sampling.seed < 2**64
    assert 0 <= (request.max_new_tokens or 0) < 2**31


@given(st.sampled_from(FLOATS + COUNTS), numbers)
@example("frequency_penalty", "1e39")
@example("frequency_penalty", "-3e38")
@example("repetition_penalty", "1e-40")
@example("repetition_penalty", "3e38")
@example("temperature", "1e-320")
@example("temperature", "-1e308")
@example("temperature", "1e400")
@example("max_tokens", str(2**63))
@example("top_k", str(2**63))
def test_a_number_is_refused_by_name_or_safe(field: str, literal: str):
    outcome = read(read_chat, field, literal)
    if isinstance(outcome, InvalidRequestError):
        assert (outcome.param, f"`{field}`" in outcome.message) == (field, True)
    else:
        check_arithmetic(outcome)


@given(st.sampled_from(["prompt_ids", "stop_token_ids"]), numbers)
@example("prompt_ids", str(2**63))
@example("stop_token_ids", str(2**63))
def test_a_token_id_is_refused_by_name_or_an_index(field: str, literal: str):
    outcome = read(read_completion, field, literal)
    if isinstance(outcome, InvalidRequestError):
        assert outcome.param == field
    else:
        ids = outcome.prompt.token_ids if isinstance(outcome.prompt, TokenPrompt) else outcome.stop_token_ids
        assert all(0 <= token_id < 2**31 for token_id in ids)


def test_the_bounds_themselves_are_taken():
    for field, literal in {
        "temperature": "100",
        "frequency_penalty": "-100",
        "presence_penalty": "100",
        "repetition_penalty": "0.01",
        "top_k": str(2**31 - 1),
        "seed": str(2**64 - 1),
        "max_tokens": str(2**31 - 1),
    }.items():
        check_arithmetic(read_chat(field, literal))
    assert read_chat("temperature", "1e-320").sampling.temperature > 0.0
    assert read_chat("temperature", "-1").sampling.is_greedy
