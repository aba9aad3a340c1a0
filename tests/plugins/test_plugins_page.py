"""docs/plugins.md says of every hook what memra/plugins/hookspecs.py says, and every hook has a test that names it."""

import ast
import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import memra.plugins
from memra.plugins import hookspecs
from memra.plugins.handles import RuntimeHandles

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "plugins.md"
SOURCE = Path(hookspecs.__file__)
BEGIN, END = "from memra/plugins/hookspecs.py -->\n", "<!-- end -->"


def hooks() -> Iterator[ast.FunctionDef]:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    yield from (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("memra_"))


def stages() -> dict[int, str]:
    """The comments that divide a server's life, by line."""
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    return {number: line[5:] for number, line in enumerate(lines, 1) if line.startswith("# -- ")}


def signature(hook: ast.FunctionDef) -> str:
    """One line, as it is written."""
    return f"def {hook.name}({ast.unparse(hook.args)}) -> {ast.unparse(hook.returns)}"


def reference() -> str:
    """The part of the page that is made from the hooks."""
    parts: list[str] = []
    waiting = stages()
    for hook in hooks():
        for line in [line for line in waiting if line < hook.lineno]:
            name, _, rule = waiting.pop(line).partition(": ")
            parts.append(f"### {name.capitalize()}\n" + (f"\n{rule[:1].upper()}{rule[1:]}.\n" if rule else ""))
        parts.append(f"#### {hook.name}\n\n```python\n{signature(hook)}\n```\n\n{in_markdown(hook)}\n")
    return "\n".join(parts)


def in_markdown(hook: ast.FunctionDef) -> str:
    """The docstring, its arguments as a list."""
    text, _, arguments = cleandoc(ast.get_docstring(hook) or "").partition("\n\nArgs:\n")
    rows = re.sub(r"^\s+(\w+): ", r"- `\1`: ", arguments, flags=re.MULTILINE)
    return f"{text}\n\n{rows}" if rows else text


def page() -> str:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{reference()}\n{END}{rest.partition(END)[2]}"


def test_every_hook_stands_on_the_page_with_its_exact_signature():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/plugins/test_plugins_page.py"


def test_every_hook_is_named_by_a_test():
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "tests").rglob("test_*.py"))
    named = " ".join(re.findall(r"def (test_\w+)", tests))
    assert not [hook.name for hook in hooks() if hook.name not in named]


def test_every_hook_has_a_caller():
    callers = [path for path in SOURCE.parent.glob("*.py") if path.name not in {"hookspecs.py", "inspection.py"}]
    called = "\n".join(path.read_text(encoding="utf-8") for path in callers)
    assert not [hook.name for hook in hooks() if f'"{hook.name}"' not in called]


def test_every_handle_stands_on_the_page():
    section = PAGE.read_text(encoding="utf-8").partition("\n## The handles\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)[`(]", section))
    handles = {name for name in vars(RuntimeHandles) if not name.startswith("_")}
    assert handles - named == set()


def test_what_plugins_may_import_is_all_there_and_sorted():
    names = memra.plugins.__all__
    assert all(hasattr(memra.plugins, name) for name in names)
    assert len(set(names)) == len(names)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
