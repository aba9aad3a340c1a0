"""Loads the native library and declares its C interface; `memra_kernels.native` makes it pleasant to use.

Mirrors `runtime/abi.h` field by field. Knows ctypes and files, and nothing of what the calls mean.
"""

import ctypes
from functools import cache
from pathlib import Path

from memra_kernels import build_native
from memra_kernels.quant_layouts.codebooks import grid_levels

MAX_PARTS = 4
"""Matrices of one linear step: `max_parts` of `runtime/types.h`."""


class NativeUnavailableError(RuntimeError):
    """The library is missing, stale, or does not load; the message says what to do."""


class NativeError(RuntimeError):
    """The native engine refused a call, in its own words."""


class RowSpec(ctypes.Structure):
    """Mirrors `RowSpec` of `runtime/abi.h`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("kind", "x", "y", "out", "weight_length", "group_width", "num_heads")),
        *((name, ctypes.c_int32) for name in ("head_dim", "half_dims", "interleaved", "activation", "layer")),
        *((name, ctypes.c_int32) for name in ("stored_type", "starts_step", "offset", "stride", "bias_length")),
        *((name, ctypes.c_float) for name in ("scale", "eps", "limit")),
        *((name, ctypes.c_void_p) for name in ("weight", "bias", "frequencies", "stored")),
        ("stored_row_bytes", ctypes.c_size_t),
    )


class LinearSpec(ctypes.Structure):
    """Mirrors `LinearSpec`."""

    _fields_ = (
        ("x", ctypes.c_int32),
        ("num_parts", ctypes.c_int32),
        *((name, ctypes.c_int32 * MAX_PARTS) for name in ("weight", "out", "add")),
        ("bias", ctypes.c_void_p * MAX_PARTS),
    )


class AttentionSpec(ctypes.Structure):
    """Mirrors `AttentionSpec`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("q", "out", "layer", "num_heads", "window", "chunk", "causal")),
        *((name, ctypes.c_float) for name in ("scale", "softcap")),
        ("sinks", ctypes.c_void_p),
    )


class ConvSpec(ctypes.Structure):
    """Mirrors `ConvSpec`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("x", "out", "taps", "activation")),
        *((name, ctypes.c_void_p) for name in ("weight", "bias")),
        ("state_offset", ctypes.c_size_t),
    )


class DeltaSpec(ctypes.Structure):
    """Mirrors `DeltaSpec`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("q", "k", "v", "a", "b", "out", "num_key_heads", "num_value_heads")),
        *((name, ctypes.c_int32) for name in ("key_dim", "value_dim", "tiled")),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("a_log", "dt_bias")),
        ("state_offset", ctypes.c_size_t),
    )


class ExpertsSpec(ctypes.Structure):
    """Mirrors `ExpertsSpec`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("x", "logits", "out", "hidden", "parts", "gate", "up", "down")),
        *((name, ctypes.c_int32) for name in ("num_experts", "used", "width", "num_groups", "num_groups_used")),
        *((name, ctypes.c_int32) for name in ("router", "normalise", "scales_input", "activation")),
        *((name, ctypes.c_float) for name in ("weight_scale", "limit")),
        *((name, ctypes.c_void_p) for name in ("gate_bias", "up_bias", "down_bias", "correction", "expert_scale")),
    )


class StepSpec(ctypes.Structure):
    """Mirrors `StepSpec`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("rows", "outputs", "num_sequences", "pages_per_sequence")),
        ("logits_stride", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("token_ids", "positions", "sequences", "output_rows", "page_tables")),
        *((name, ctypes.c_void_p) for name in ("states_in", "states_out")),
        ("logits", ctypes.c_void_p),
    )


_HANDLE, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "memra_error": (ctypes.c_char_p, ()),
    "memra_compiler": (ctypes.c_char_p, ()),
    "memra_variants": (ctypes.c_char_p, ()),
    "memra_grids": (_INT, (_HANDLE, ctypes.c_size_t)),
    "memra_pool_new": (_HANDLE, (_INT, _INT)),
    "memra_pool_free": (None, (_HANDLE,)),
    "memra_plan_new": (_HANDLE, (_HANDLE, ctypes.c_char_p, _INT)),
    "memra_plan_free": (None, (_HANDLE,)),
    "memra_plan_weight": (_INT, (_HANDLE, _INT, _HANDLE, ctypes.c_size_t, _INT, _INT)),
    "memra_plan_tiles": (_INT, (_HANDLE, _INT, _HANDLE, ctypes.c_size_t, _INT, _INT)),
    "memra_weight_bytes": (ctypes.c_int64, (_INT, _INT, _INT)),
    "memra_repack": (_INT, (_HANDLE, _INT, _HANDLE, ctypes.c_size_t, _INT, _INT, _HANDLE)),
    "memra_plan_unpack": (_INT, (_HANDLE, _INT, _HANDLE)),
    "memra_plan_buffer": (_INT, (_HANDLE, _INT, _INT, _INT, _INT)),
    "memra_plan_states": (_INT, (_HANDLE, _INT, ctypes.c_size_t)),
    "memra_plan_state_bytes": (ctypes.c_size_t, (_HANDLE,)),
    "memra_plan_state": (_HANDLE, (_HANDLE, _INT)),
    "memra_plan_conv": (_INT, (_HANDLE, _HANDLE)),
    "memra_plan_delta": (_INT, (_HANDLE, _HANDLE)),
    "memra_plan_experts": (_INT, (_HANDLE, _HANDLE)),
    "memra_plan_cache": (_INT, (_HANDLE, _INT, _INT, _HANDLE, _HANDLE, _HANDLE, _INT)),
    "memra_plan_row": (_INT, (_HANDLE, _HANDLE)),
    "memra_plan_linear": (_INT, (_HANDLE, _HANDLE)),
    "memra_plan_gated": (_INT, (_HANDLE, _INT, _INT, _INT, _INT, _INT, _FLOAT)),
    "memra_plan_attention": (_INT, (_HANDLE, _HANDLE)),
    "memra_plan_head": (_INT, (_HANDLE, _INT, _INT, _FLOAT, _FLOAT)),
    "memra_plan_hidden": (_INT, (_HANDLE, _INT)),
    "memra_plan_positions": (None, (_HANDLE, _INT)),
    "memra_plan_vocabulary": (None, (_HANDLE, _INT)),
    "memra_plan_many_rows_from": (None, (_HANDLE, _INT)),
    "memra_plan_run": (_INT, (_HANDLE, _HANDLE)),
    "memra_plan_page_bytes": (ctypes.c_size_t, (_HANDLE,)),
    "memra_plan_bytes": (ctypes.c_size_t, (_HANDLE,)),
    "memra_plan_page": (_HANDLE, (_HANDLE, _INT)),
}


@cache
def library(path: Path = build_native.LIBRARY) -> ctypes.CDLL:
    """The loaded library; its calls run without the GIL.

    Raises:
        NativeUnavailableError: not built, not loadable, or built from other sources.
    """
    remedy = "build it with `python -m memra_kernels.build_native`"
    if not path.exists():
        raise NativeUnavailableError(f"the native CPU engine is not built: {remedy}")
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeUnavailableError(f"the native CPU engine does not load ({error}): {remedy}") from error
    lib.memra_source_digest.restype = ctypes.c_char_p
    if lib.memra_source_digest().decode() != build_native.source_digest():
        raise NativeUnavailableError(f"the native CPU engine was built from other sources: {remedy}")
    for name, (result, arguments) in _SIGNATURES.items():  # after the digest: other sources may lack a function
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    levels = grid_levels()
    if lib.memra_grids(levels.ctypes.data, levels.nbytes) < 0:
        raise NativeUnavailableError(f"the package gguf does not fit: {lib.memra_error().decode()}")
    return lib


def checked(result: int | None) -> int:
    """The result of a call, unless it reports a failure.

    Raises:
        NativeError: the result is negative or null.
    """
    if result is None or result < 0:
        raise NativeError(library().memra_error().decode())
    return result
