"""Binds the native CPU engine (C++ in this package) to Python with ctypes and numpy.

A `Plan` is one model: weights in tiled layouts, activations, key-value pages and a list of steps; `run` computes one
batch in a single call that holds no GIL. This module is the door: what callers import. Behind it are `native_plan`,
`native_operations`, `native_specs`, `native_threads` and `native_library`, and none of them knows models;
`memra.engine.cpu_executor` turns a model's program into a plan. Build the library with
`python -m memra_kernels.build_native`.
"""

from memra_kernels.native_library import MAX_PARTS, NativeError, NativeUnavailableError, library
from memra_kernels.native_operations import (
    ACTIVATIONS,
    FLOAT_TYPES,
    GGML_TYPES,
    KV_TYPES,
    MAX_HEAD_DIM,
    PAGE_TOKENS,
    Batch,
    CacheLayer,
    DeltaOp,
    ExpertsOp,
    LinearPart,
    RowOp,
)
from memra_kernels.native_plan import Plan
from memra_kernels.native_threads import ThreadPool, compiler_version, usable_variants

__all__ = [
    "ACTIVATIONS",
    "FLOAT_TYPES",
    "GGML_TYPES",
    "KV_TYPES",
    "MAX_HEAD_DIM",
    "MAX_PARTS",
    "PAGE_TOKENS",
    "Batch",
    "CacheLayer",
    "DeltaOp",
    "ExpertsOp",
    "LinearPart",
    "NativeError",
    "NativeUnavailableError",
    "Plan",
    "RowOp",
    "ThreadPool",
    "compiler_version",
    "library",
    "usable_variants",
]
