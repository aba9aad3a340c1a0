"""Which dialect a model speaks, found out from its chat template.

Trade: the order of the questions. A marker is often a part of several formats, so the dialects with the more particular
ones are asked first; `tests/chat/tool_dialects/test_registry.py` holds the order against templates. Nothing goes by a
model's name.
"""

from memra.chat.tool_dialects.contract import ToolDialect
from memra.chat.tool_dialects.generic import GenericDialect
from memra.chat.tool_dialects.hermes import HermesDialect

GENERIC = GenericDialect()
"""For models whose template has no tools; only by a setting."""

DIALECTS: tuple[ToolDialect, ...] = (HermesDialect(),)
"""All dialects that templates speak, in the order in which they are asked."""


def find_dialect(template: str) -> ToolDialect:
    """The dialect of a chat template with tools, given its source.

    A template that shows tools without a known way to call them is answered in many ways, of which the format that most
    models were trained on, and the bare JSON object, are read.
    """
    return next((dialect for dialect in DIALECTS if dialect.knows(template)), GENERIC)
