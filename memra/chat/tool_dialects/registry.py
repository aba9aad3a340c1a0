"""Which dialect a model speaks, found out from its chat template.

Trade: the order of the questions. A marker is often a part of several formats, so the dialects with the more particular
ones are asked first; `tests/chat/tool_dialects/test_registry.py` holds the order against templates. Nothing goes by a
model's name.
"""

import logging
from collections.abc import Sequence

from memra.chat.tool_dialects.apertus import ApertusDialect
from memra.chat.tool_dialects.contract import ToolDialect
from memra.chat.tool_dialects.deepseek import DeepSeekDialect
from memra.chat.tool_dialects.gemma import GemmaDialect
from memra.chat.tool_dialects.generic import GenericDialect
from memra.chat.tool_dialects.gigachat import GigaChatDialect
from memra.chat.tool_dialects.glm import GlmDialect
from memra.chat.tool_dialects.harmony import HarmonyDialect
from memra.chat.tool_dialects.hermes import HermesDialect
from memra.chat.tool_dialects.hunyuan import HunyuanTagDialect
from memra.chat.tool_dialects.invoke_tags import deepseek_dsml, minimax_m2, minimax_m3, muse, step3
from memra.chat.tool_dialects.json_dialects import ARRAY_DIALECTS
from memra.chat.tool_dialects.kimi import KimiDialect
from memra.chat.tool_dialects.lfm2 import Lfm2Dialect
from memra.chat.tool_dialects.llama import LlamaDialect
from memra.chat.tool_dialects.minicpm import MiniCpmDialect
from memra.chat.tool_dialects.mistral import MistralDialect
from memra.chat.tool_dialects.qwen_xml import QwenXmlDialect, SeedDialect
from memra.chat.tool_dialects.solar import SolarDialect

log = logging.getLogger(__name__)

GENERIC = GenericDialect()
"""For models whose template has no tools; only by a setting."""

DIALECTS: tuple[ToolDialect, ...] = (
    # Tokens that no other dialect has.
    HarmonyDialect(),
    GemmaDialect(),
    deepseek_dsml("function_calls"),
    deepseek_dsml("tool_calls"),
    DeepSeekDialect(is_fenced=True),
    DeepSeekDialect(is_fenced=False),
    KimiDialect(),
    MistralDialect(is_array=False),
    MistralDialect(is_array=True),
    Lfm2Dialect(),
    ApertusDialect(),
    SolarDialect(),
    GigaChatDialect(is_role=False),
    GigaChatDialect(is_role=True),
    minimax_m2(),
    minimax_m3(),
    muse(),
    step3(),
    SeedDialect(),
    MiniCpmDialect(),
    # Tags inside `<tool_call>` or `<tool_calls>`, before the JSON that shares the outer tag.
    HunyuanTagDialect(":opensource"),
    HunyuanTagDialect(""),
    GlmDialect(),
    QwenXmlDialect(),
    # JSON arrays: those between markers of their own, then Hermes, then the plainest.
    *ARRAY_DIALECTS,
    HermesDialect(),
    LlamaDialect(is_pythonic=True),
    LlamaDialect(is_pythonic=False),
)
"""All dialects that templates speak, in the order in which they are asked."""


def find_dialect(template: str, *, further: Sequence[ToolDialect] = ()) -> ToolDialect:
    """The dialect of a chat template with tools, given its source; `further` dialects are asked first.

    A template that shows tools without a known way to call them is answered in many ways, of which the format that most
    models were trained on, and the bare JSON object, are read.
    """
    return next((dialect for dialect in (*further, *DIALECTS) if _knows(dialect, template)), GENERIC)


def _knows(dialect: ToolDialect, template: str) -> bool:
    """Ask a dialect, which may be somebody else's code; one that fails does not know the template."""
    try:
        return dialect.knows(template)
    except Exception:
        log.exception("the tool dialect %s failed on a chat template, and is not used for it", dialect.name)
        return False
