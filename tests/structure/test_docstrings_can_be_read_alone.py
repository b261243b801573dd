"""Promise: whatever is public has a docstring, and each docstring can be read alone.

ruff's pydocstyle rules hold the form. They ask nothing of a method without a docstring (D102 is
off), since it may override one that has it; and they know no word that leans on a line above.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import resumerge

PACKAGE = Path(resumerge.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted(Path(__file__).parents[1].rglob("*.py"))

LEANING = {
    *("Again", "Also", "And", "As", "Because", "Beside", "Besides", "But", "By", "Else", "Even"),
    *("For", "From", "If", "In", "It", "Its", "Likewise", "Neither", "Nor", "Not", "Nothing", "Of"),
    *("On", "Or", "Otherwise", "Self", "So", "That", "Them", "Then", "There", "These", "They"),
    *("Those", "Though", "To", "Until", "When", "Where", "With"),
}
"""First words of a sentence that goes on with one before it."""

NOUNS = LEANING | {
    *("A", "All", "An", "Each", "Every", "How", "One", "The", "What", "Whether", "Which", "Why")
}
"""First words of what is no verb."""


def definitions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Yield every function and class in a module; `ast.walk` would also visit expressions."""
    for block in ("body", "orelse", "finalbody", "handlers"):
        for statement in getattr(node, block, ()):
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                yield statement
            yield from definitions(statement)


def documented(modules: list[Path]) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef, str]]:
    """Yield (place, node, docstring) of every function and class."""
    for module in modules:
        for node in definitions(ast.parse(module.read_text(encoding="utf-8"))):
            if text := ast.get_docstring(node):
                yield f"{module}:{node.lineno} {node.name}", node, text


def is_property(node: ast.FunctionDef | ast.ClassDef) -> bool:
    names = map(ast.unparse, node.decorator_list)
    return any("property" in name for name in names)


def test_a_docstring_begins_with_a_verb_or_leans_on_nothing() -> None:
    """A function's begins with a verb. A class's, a property's or a test's need not."""
    unclear = []
    for place, node, text in documented(MODULES + TESTS):
        first = text.split()[0].rstrip(",:;")
        of_class = isinstance(node, ast.ClassDef) or is_property(node)
        if of_class or node.name.startswith("test_"):
            unclear += [place] if first in LEANING else []
        else:
            unclear += [place] if first in NOUNS or not text[0].isupper() else []
    assert unclear == []


def test_the_docstring_of_a_module_is_no_question() -> None:
    asking = [
        str(module.relative_to(PACKAGE))
        for module in MODULES
        if (ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "")[:6] == "Which "
    ]
    assert asking == []


@pytest.mark.needs("torch")
def test_a_public_method_has_a_docstring_or_overrides_one_that_has() -> None:
    silent = []
    for path in MODULES:
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        if parts[-1] == "__main__":
            continue
        for kind in vars(importlib.import_module(name)).values():
            public = inspect.isclass(kind) and not kind.__name__.startswith("_")
            if public and kind.__module__ == name:
                silent += [
                    f"{name}.{kind.__qualname__}.{method}"
                    for method in vars(kind)
                    if not method.startswith("_") and inspect.isfunction(vars(kind)[method])
                    if vars(kind)[method].__name__ == method  # not the default of a field
                    if not inspect.getdoc(getattr(kind, method))
                ]
    assert silent == []


def test_what_a_class_lists_are_its_fields_or_arguments() -> None:
    """Under `Args:` and `Attributes:`, of this class and of those above it in the package."""
    classes = [
        (place, node, text)
        for place, node, text in documented(MODULES)
        if isinstance(node, ast.ClassDef)
    ]
    known: dict[str, set[str]] = {}
    for _, node, _ in classes:
        known.setdefault(node.name, set()).update(names_of(node))
    for _ in range(4):  # more than any class has above it
        for _, node, _ in classes:
            for base in node.bases:
                known[node.name] |= known.get(ast.unparse(base).rpartition(".")[2], set())
    unknown = [
        f"{place}: {name}"
        for place, node, text in classes
        for name in listed_in(text)
        if name not in known[node.name]
    ]
    assert unknown == []


def listed_in(text: str) -> Iterator[str]:
    """Yield the names that a docstring lists under `Args:` and `Attributes:`."""
    for part in re.findall(r"^(?:Args|Attributes):\n((?:(?: {4}.*)?\n?)+)", text, re.MULTILINE):
        yield from re.findall(r"^ {4}(\w+):", part, re.MULTILINE)


def names_of(node: ast.ClassDef) -> set[str]:
    """Return the names of a class's fields, of arguments of `__init__`, and of what methods set."""
    names = {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            if item.name == "__init__":
                names |= {each.arg for each in (*item.args.args, *item.args.kwonlyargs)}
            if is_property(item):
                names.add(item.name)
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            names.add(each.attr)
        if isinstance(each, ast.Assign):
            names |= {target.id for target in each.targets if isinstance(target, ast.Name)}
    return names
