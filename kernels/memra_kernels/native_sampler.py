"""Binds the native sampler to Python: one row of logits to one token, with log probabilities on request.

The steps and their tie rules are those of `sampler/README.md`. Knows numpy and the C interface of `sampler/cpu`, but
neither torch nor the server, whose `memra.engine.native_sampler` puts it behind the engine's own seam.
"""

import ctypes
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from memra_kernels.native_library import library

MAX_TOP_LOGPROBS = 20
"""Log probabilities listed beside the chosen token's: `max_top` of `sampler/cpu/token_choice.h`."""

_CHOSEN, _NOT_FINITE, _BAD_ARGUMENT = range(3)  # `Status` of token_choice.h


class NotFiniteError(ValueError):
    """A logit is not a number, or the largest is infinite.

    Attributes:
        token_id: of the offending logit.
        value: what it holds.
    """

    def __init__(self, token_id: int, value: float) -> None:
        super().__init__(f"the logits hold {value} at token {token_id}")
        self.token_id = token_id
        self.value = value


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How to choose; the defaults draw from the model's own distribution.

    Attributes:
        temperature: 0 or less takes the most likely token.
        top_k: keep this many most likely tokens; 0 is off.
        typical_p: keep the smallest set of most typical tokens whose mass reaches this; 1 is off.
        top_p: keep the smallest set of most likely tokens whose mass reaches this; 1 is off.
        min_p: drop tokens less likely than this fraction of the most likely one that is left; 0 is off.
        repetition_penalty: divides a positive and multiplies a negative logit of a token in the window; 1 is off.
        frequency_penalty: subtracted per occurrence in the window.
        presence_penalty: subtracted once for every token in the window.
        num_top_logprobs: most likely tokens to list, at most `MAX_TOP_LOGPROBS`; 0 gives the chosen token's log
            probability alone, None none at all.
    """

    temperature: float = 1.0
    top_k: int = 0
    typical_p: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    num_top_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Adjustments:
    """What a row is changed by before the choice; whatever is None is left out.

    Attributes:
        window_ids: int64 `[D]`, distinct tokens that the penalties apply to.
        window_counts: int32 `[D]`, how often each occurred.
        bias_ids: int64 `[B]`.
        bias_values: float32 `[B]`, added to the logits of `bias_ids`.
        mask: uint32 `[ceil(V / 32)]`; token `i` is allowed where bit `i % 32` of word `i // 32` is set.
    """

    window_ids: NDArray[np.int64] | None = None
    window_counts: NDArray[np.int32] | None = None
    bias_ids: NDArray[np.int64] | None = None
    bias_values: NDArray[np.float32] | None = None
    mask: NDArray[np.uint32] | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen token.

    Attributes:
        token_id: the token.
        logprob: natural log of its probability in the model's own distribution; None where none was asked for.
        top: the most likely tokens of that distribution with their log probabilities, best first.
    """

    token_id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class _Request(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_double) for name in ("temperature", "top_p", "min_p", "typical_p")),
        *((name, ctypes.c_double) for name in ("repetition_penalty", "frequency_penalty", "presence_penalty")),
        *((name, ctypes.c_uint64) for name in ("seed", "position")),
        *(
            (name, ctypes.c_void_p)
            for name in ("logits", "window_ids", "window_counts", "bias_ids", "bias_values", "mask")
        ),
        *((name, ctypes.c_int32) for name in ("vocab_size", "top_k", "num_window", "num_bias", "num_top")),
    )


class _Answer(ctypes.Structure):
    _fields_ = (
        ("status", ctypes.c_int32),
        ("token", ctypes.c_int32),
        ("value", ctypes.c_float),
        ("logprob", ctypes.c_float),
        ("top_ids", ctypes.c_int32 * MAX_TOP_LOGPROBS),
        ("top_logprobs", ctypes.c_float * MAX_TOP_LOGPROBS),
    )


_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "memra_sampler_variant": (ctypes.c_char_p, (ctypes.c_int,)),
    "memra_sampler_workspace_bytes": (ctypes.c_size_t, (ctypes.c_int,)),
    "memra_sampler_choose": (None, (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)),
}


@cache
def _sampler_library() -> ctypes.CDLL:
    lib = library()
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


def usable_variants() -> list[str]:
    """Instruction sets that this processor runs, best first; all make the same choices, to the bit.

    Raises:
        NativeUnavailableError: the native library is not built; see `memra_kernels.native`.
    """
    lib, names = _sampler_library(), list[str]()
    while (name := lib.memra_sampler_variant(len(names))) is not None:
        names.append(name.decode())
    return names


class NativeSampler:
    """Chooses tokens for one vocabulary; owns the scratch memory, so one thread at a time may use it.

    Different samplers may run at the same time: a call holds no GIL and allocates nothing.
    """

    def __init__(self, vocab_size: int, *, variant: str | None = None) -> None:
        """Make room for rows of `vocab_size` logits: 28 bytes for each.

        Args:
            vocab_size: at least 1.
            variant: one of `usable_variants()`; None takes the best.

        Raises:
            NativeUnavailableError: the native library is not built.
            ValueError: no such variant, or no vocabulary.
        """
        if vocab_size < 1:
            raise ValueError(f"a vocabulary of {vocab_size} tokens has nothing to choose from")
        self.vocab_size = vocab_size
        names = usable_variants()
        self._variant = 0 if variant is None else names.index(variant)
        lib = _sampler_library()
        self._choose = lib.memra_sampler_choose
        self._workspace = np.empty(lib.memra_sampler_workspace_bytes(vocab_size), np.uint8)
        self._request = _Request(vocab_size=vocab_size)
        self._answer = _Answer()
        self._options: SamplingOptions | None = None
        self._arguments = (
            self._variant,
            ctypes.addressof(self._request),
            _address(self._workspace),
            ctypes.addressof(self._answer),
        )

    def choose(
        self,
        logits: NDArray[np.float32],
        options: SamplingOptions,
        *,
        seed: int,
        position: int,
        adjustments: Adjustments | None = None,
    ) -> Choice:
        """Choose one token.

        Args:
            logits: float32 `[vocab_size]`, contiguous; not changed. Minus infinity rules a token out.
            options: how to choose.
            seed: key of the counter-based generator; its low 64 bits count.
            position: counter of the generator; its low 64 bits count.
            adjustments: bias, penalty window and mask.

        Raises:
            NotFiniteError: a logit is not a number, or the largest is infinite.
            ValueError: an array of another type or size than it should be, or a token outside of the vocabulary.
        """
        if options is not self._options:  # mostly the same request asks again
            self._set_options(options)
        request = self._request
        request.logits = _checked_address(logits, np.float32, self.vocab_size)
        request.seed, request.position = seed & _WORD, position & _WORD
        self._set_adjustments(adjustments or _NO_ADJUSTMENTS)
        self._choose(*self._arguments)
        answer = self._answer
        if answer.status == _NOT_FINITE:
            raise NotFiniteError(answer.token, answer.value)
        if answer.status == _BAD_ARGUMENT:
            raise ValueError(f"a biased or penalised token is outside of the vocabulary of {self.vocab_size}")
        num_top = options.num_top_logprobs
        if num_top is None:
            return Choice(answer.token)
        num_top = min(num_top, self.vocab_size)
        top = tuple(zip(answer.top_ids[:num_top], answer.top_logprobs[:num_top], strict=True))
        return Choice(answer.token, answer.logprob, top)

    def _set_options(self, options: SamplingOptions) -> None:
        self._options = None  # until all of them are taken over
        request, num_top = self._request, options.num_top_logprobs
        if num_top is not None and not 0 <= num_top <= MAX_TOP_LOGPROBS:
            raise ValueError(f"{num_top} log probabilities were asked for, but 0 to {MAX_TOP_LOGPROBS} can be listed")
        request.temperature = options.temperature
        request.top_k = min(options.top_k, self.vocab_size)
        request.typical_p = options.typical_p
        request.top_p = options.top_p
        request.min_p = options.min_p
        request.repetition_penalty = options.repetition_penalty
        request.frequency_penalty = options.frequency_penalty
        request.presence_penalty = options.presence_penalty
        request.num_top = -1 if num_top is None else num_top
        self._options = options

    def _set_adjustments(self, adjustments: Adjustments) -> None:
        request = self._request
        request.num_window, request.window_ids, request.window_counts = _address_pairs(
            adjustments.window_ids, adjustments.window_counts, np.int32
        )
        request.num_bias, request.bias_ids, request.bias_values = _address_pairs(
            adjustments.bias_ids, adjustments.bias_values, np.float32
        )
        mask = adjustments.mask
        request.mask = None if mask is None else _checked_address(mask, np.uint32, -(-self.vocab_size // 32))


_WORD = (1 << 64) - 1
_NO_ADJUSTMENTS = Adjustments()


def _address(array: NDArray[np.generic]) -> int:
    address: int = array.__array_interface__["data"][0]  # a third of what `array.ctypes.data` costs
    return address


def _checked_address(array: NDArray[np.generic], dtype: type[np.generic], size: int) -> int:
    if array.dtype != dtype or array.shape != (size,) or not array.flags.c_contiguous:
        raise ValueError(f"expected a contiguous {dtype.__name__} array [{size}], not {array.dtype} {array.shape}")
    return _address(array)


def _address_pairs(
    ids: NDArray[np.int64] | None, values: NDArray[np.generic] | None, dtype: type[np.generic]
) -> tuple[int, int | None, int | None]:
    if ids is None or values is None:
        return 0, None, None
    return ids.size, _checked_address(ids, np.int64, ids.size), _checked_address(values, dtype, ids.size)
