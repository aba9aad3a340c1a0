"""The findings about a model as text for people and as values for JSON; knows words, units and widths only."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from memra.cli_models.facts import Inspection, MemoryNeed, TemplateFacts, Verdict, VocabularyFacts
from memra.messages.vocabulary import TokenizerKind

_LABEL_WIDTH: Final = 14
_MB: Final = 1e6
_MIB: Final = 1 << 20
_KIB: Final = 1 << 10
_UNITS: Final = ((1e9, "billion"), (1e6, "million"))
_RANK: Final = "rank"
_KINDS: Final = {
    TokenizerKind.BYTE_BPE: "byte-level BPE",
    TokenizerKind.SENTENCEPIECE_BPE: "SentencePiece BPE",
    TokenizerKind.UNIGRAM: "unigram",
    TokenizerKind.WORDPIECE: "WordPiece",
    TokenizerKind.GEMMA4_BPE: "BPE of Gemma's kind",
    TokenizerKind.TOKENIZER_JSON: "tokenizer.json",
}


def as_values(found: Inspection) -> Mapping[str, Any]:
    """The findings for JSON: sizes in bytes, sums spelled out."""
    values = asdict(found)
    if found.memory is not None:
        values["memory"] |= {"kv_bytes": found.memory.kv_bytes, "total_bytes": found.memory.total_bytes}
    return values


def render(found: Inspection) -> str:
    """Lines of `label  finding`, a table of types, and the verdict; ends in a newline."""
    lines = [
        ("model", found.name or "unnamed"),
        ("path", found.path),
        ("architecture", found.architecture),
        ("parameters", _count(found.num_parameters)),
        ("file size", f"{found.size_bytes / _MB:,.1f} MB"),
        ("context", "not said" if found.context_tokens is None else f"{found.context_tokens:,} tokens"),
        ("vocabulary", _vocabulary(found.vocabulary)),
        _purpose(found),
        *_memory(found.memory),
    ]
    text = "".join(_line(label, finding) for label, finding in lines)
    if found.quant_types:
        rows = [(share.quant_type, str(share.num_tensors), f"{share.num_bytes:,}") for share in found.quant_types]
        text += f"\n{_table([('type', 'tensors', 'bytes'), *rows])}\n"
    return text + (_line("supported", "yes") if found.verdict is Verdict.SUPPORTED else render_refusal(found.obstacle))


def render_refusal(obstacle: str | None) -> str:
    """The last line, where memra does not run the model."""
    return _line("supported", f"no: {obstacle}")


def _line(label: str, finding: str) -> str:
    return f"{label:<{_LABEL_WIDTH}}{finding}\n"


def _count(number: int) -> str:
    for size, word in _UNITS:
        if number >= size:
            return f"{number / size:.1f} {word}"
    return f"{number:,}"


def _vocabulary(facts: VocabularyFacts | None) -> str:
    if facts is None:
        return "cannot be read"
    rule = f" ({facts.pre})" if facts.pre else ""
    return f"{facts.num_tokens:,} tokens, {_KINDS[facts.kind]}{rule}"


def _purpose(found: Inspection) -> tuple[str, str]:
    """How a language model is spoken to, or what another one makes of a text."""
    if found.pooling is None:
        return "template", _template(found.template)
    if found.pooling.pooling == _RANK:
        return "scores", f"{found.pooling.width} for each text"
    return "embeddings", f"{found.pooling.width:,} numbers, {found.pooling.pooling} pooling"


def _template(facts: TemplateFacts | None) -> str:
    if facts is None:
        return "cannot be used"
    if not facts.is_own:
        return "none of its own: plain ChatML, without tools"
    tools = "tools" if facts.supports_tools else "no tools"
    return f"{tools}, thinking by {', '.join(facts.thinking)}" if facts.thinking else f"{tools}, no thinking"


def _memory(need: MemoryNeed | None) -> list[tuple[str, str]]:
    if need is None:
        return [("memory", "not known")]
    states = f", recurrent states {_mib(need.state_bytes)}" if need.state_bytes else ""
    return [
        ("memory", f"{_mib(need.total_bytes)} for {need.context_tokens:,} tokens on the {need.executor}:"),
        ("", f"weights {_mib(need.weight_bytes)}, keys and values {_mib(need.kv_bytes)}{states}"),
        ("", f"({need.kv_bytes_per_token / _KIB:,.1f} KiB a token)"),
    ]


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / _MIB:,.0f} MiB"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    """The first column reads, the others count."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        for row in rows
    ]
    return "".join(f"{'  '.join(line)}\n" for line in lines)
