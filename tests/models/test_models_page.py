"""The families in docs/reference/models.md are those of the registries, with what each was held against.

`python tests/models/test_models_page.py` writes the section anew.
"""

from pathlib import Path

from memra_kernels.native import GGML_TYPES

from memra.loading.huggingface.registry import FAMILIES as DIRECTORIES
from memra.models.registry import FAMILIES

_ROOT = Path(__file__).parents[2]
PAGE = _ROOT / "docs/reference/models.md"
BEGIN, END = "<!-- families: begin -->\n", "<!-- families: end -->\n"
REAL_MODELS = {
    "bert": "all-MiniLM-L6-v2",
    "gemma3": "Gemma 3 270M",
    "llama": "SmolLM2 135M",
    "qwen2": "Qwen2.5-Coder 0.5B",
}
"""Published weights that tests run, by architecture."""


def families_section() -> str:
    """The table, and the types of weights that every family takes."""
    lines = [
        "| architecture in GGUF | directories of transformers | published weights run in tests |",
        "|---|---|---|",
    ]
    tested = _tested_classes()
    for architecture in sorted(FAMILIES):
        names = sorted(name for name, family in DIRECTORIES.items() if family.gguf_name == architecture)
        shown = ", ".join(f"`{name}`" if name in tested else f"`{name}` (not tested)" for name in names)
        lines.append(f"| `{architecture}` | {shown} | {REAL_MODELS.get(architecture, '')} |")
    types = ", ".join(f"`{name}`" for name in sorted(GGML_TYPES, key=GGML_TYPES.__getitem__))
    return "\n".join(lines) + f"\n\nTypes of weights on the native engine, for every family: {types}.\n"


def _tested_classes() -> frozenset[str]:
    """Classes of transformers that the tests of families build and compare with."""
    text = "".join(path.read_text() for path in sorted((_ROOT / "tests/models/families").glob("*.py")))
    return frozenset(name for name in DIRECTORIES if name in text)


def test_the_page_names_the_families_of_the_registries():
    page = PAGE.read_text()
    assert page.partition(BEGIN)[2].partition(END)[0] == families_section(), "python tests/models/test_models_page.py"


def test_every_architecture_was_held_against_transformers():
    tested = _tested_classes()
    untested = set(FAMILIES) - {DIRECTORIES[name].gguf_name for name in tested}
    assert not untested


if __name__ == "__main__":
    head, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(head + BEGIN + families_section() + END + rest.partition(END)[2])
