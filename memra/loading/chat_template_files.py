"""The chat templates of a model directory: the one for every chat, and those for a purpose.

Trade: four places where they may lie, and which wins, as in transformers. Refuses to know what they say. Called by
`tokenizer_files`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from memra.loading.json_files import optional_json, read_text

FILE_NAME: Final = "chat_template.jinja"
JSON_NAME: Final = "chat_template.json"
FOLDER: Final = "additional_chat_templates"
_DEFAULT: Final = "default"
_MAX_TEMPLATES: Final = 64


@dataclass(frozen=True, slots=True)
class ChatTemplates:
    """Jinja sources.

    Attributes:
        default: for every chat, or None.
        named: those for a purpose, such as `tool_use`.
    """

    default: str | None = None
    named: Mapping[str, str] = field(default_factory=dict)


def read_templates(directory: Path, tokenizer_config: Mapping[str, object]) -> ChatTemplates:
    """The templates of a directory.

    `chat_template.jinja` wins over `chat_template.json`, and that over tokenizer_config.json; a file of
    `additional_chat_templates` wins over a template of the same name in tokenizer_config.json. A single template is the
    default whatever its name.

    Raises:
        SourceError: a file cannot be read.
        CorruptFileError: a file is not UTF-8 or JSON.
    """
    named = _listed(tokenizer_config.get("chat_template"))
    named |= _listed(optional_json(directory / JSON_NAME).get("chat_template"))
    for path in sorted((directory / FOLDER).glob("*.jinja"))[:_MAX_TEMPLATES]:
        named[path.stem] = read_text(path)
    if (directory / FILE_NAME).is_file():
        named[_DEFAULT] = read_text(directory / FILE_NAME)
    default = named.pop(_DEFAULT, None)
    if default is None and len(named) == 1:
        (default,) = named.values()
    return ChatTemplates(default, named)


def _listed(value: object) -> dict[str, str]:
    """Templates by name, from a text or a list of objects with `name` and `template`; anything else is none."""
    if isinstance(value, str):
        return {_DEFAULT: value}
    found = {}
    for entry in value if isinstance(value, list) else ():
        name, template = (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None)
        if isinstance(name, str) and isinstance(template, str):
            found[name] = template
    return found
