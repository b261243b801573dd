"""Promise: the package has no circular imports, no large folders, and no ambiguous public names.

Import-linter's contracts in pyproject.toml say which room may import which: `make lint`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

import resumerge

PACKAGE = Path(resumerge.__file__).parent


def folders() -> Iterator[Path]:
    for init in sorted(PACKAGE.rglob("__init__.py")):
        yield init.parent


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions, imports for types and those through a folder's names all count."""
    graph = grimp.build_graph("resumerge")
    imports = {
        module: graph.find_modules_directly_imported_by(module)
        for module in graph.modules
        if module != "resumerge"  # its functions are fetched from api when they are asked for
    }
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the modules of a circle


def test_every_folder_says_what_lives_there() -> None:
    silent = [
        str(folder.relative_to(PACKAGE))
        for folder in folders()
        if not ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_no_folder_has_to_be_scrolled() -> None:
    counts = {
        str(folder.relative_to(PACKAGE)): len(list(folder.glob("*.py"))) for folder in folders()
    }
    del counts["cli"]  # one file for each command: the folder is their list
    assert {name: count for name, count in counts.items() if count > 16} == {}


def defined_twice(kind: type[ast.ClassDef | ast.FunctionDef]) -> dict[str, list[str]]:
    """Return the public top-level classes or functions that several files define, and the files."""
    files: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, kind) and not node.name.startswith("_"):
                files.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    return {name: found for name, found in files.items() if len(found) > 1}


def test_a_class_has_its_name_alone() -> None:
    """A public class can be looked up by its name: no other file has one of that name."""
    assert defined_twice(ast.ClassDef) == {}


SAME_TASK = {
    *("command", "main"),  # a command line has one of its own
    *("explain", "push", "try_model"),  # a Python function, and what it calls
    *("document_of", "fragment"),  # of a comparison and a search; of a run and a plan
    *("adapter_config", "cache_folder", "factors", "working_bytes"),
}
"""Names of functions that do the same task, each for what its file is about.

A new one needs a reason, or another name. A name that means two things gets two names.
"""


def test_a_function_has_its_name_alone() -> None:
    """A public function can be looked up by its name, except for a few that do the same task."""
    assert defined_twice(ast.FunctionDef).keys() == SAME_TASK
