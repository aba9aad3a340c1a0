from typing import Any

import pytest

from memra.engine.device_faults import DeviceLostError, raise_if_device_is_lost

LOST = [
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported",
    "CUDA error: unspecified launch failure",
    "CUDA driver error: CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA error: uncorrectable ECC error encountered",
    "CUDA error: no CUDA-capable device is detected",
]
OWN = [
    "CUDA out of memory. Tried to allocate 20.00 MiB.",
    "CUDA error: out of memory",
    "shape '[3]' is invalid for input of size 4",
    "the logits for position 9 hold nan at token 2",
    "",
]


@pytest.mark.parametrize("words", LOST)
def test_a_lost_device_is_told_by_its_drivers_words(words: str):
    cause = RuntimeError(words)
    with pytest.raises(DeviceLostError, match="RuntimeError") as lost:
        raise_if_device_is_lost(cause)
    assert lost.value.__cause__ is cause
    with pytest.raises(DeviceLostError) as again:
        raise_if_device_is_lost(lost.value)
    assert again.value is lost.value


@pytest.mark.parametrize("words", OWN)
def test_an_error_of_one_request_is_not_a_lost_device(words: str):
    raise_if_device_is_lost(RuntimeError(words))


def test_a_lost_device_ends_the_step_and_blames_no_request(
    watch: Any, make_model: Any, make_request: Any, fake_executor: Any
):
    executor = fake_executor(raising={3: RuntimeError(LOST[0])})
    watched = watch(make_model(executor))
    watched.engine.submit(make_request("a", (3,), 2))
    watched.engine.submit(make_request("b", (1,), 2))
    with pytest.raises(DeviceLostError):
        watched.step()
