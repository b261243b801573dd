"""The tests of a source file: `make tests-of FILE=resumerge/engine/cluster/retries.py`.

It prints, one a line, the test files that import the file, or a public name of it from the folder
that exports it, themselves or through the helpers beside them and in `tests/support`. If there is
none, it prints the folder of tests with the file's path: commands and what only processes see are
tested from outside. Imports inside functions count; those of `conftest.py` do not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> frozenset[tuple[str, str]]:
    """Return what a file imports: pairs of a module and a name in it, which may be empty."""
    found = set[tuple[str, str]]()
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {(node.module, alias.name) for alias in node.names}
    return frozenset(found)


def public_names(path: Path) -> set[str]:
    """Return the names that a file defines and others may import."""
    names = set[str]()
    for node in _parsed(path).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {each.id for target in node.targets for each in ast.walk(target)
                      if isinstance(each, ast.Name)}  # fmt: skip
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_")}


def spellings(source: Path) -> set[tuple[str, str]]:
    """Return every way to import a source file or a name of it, in the form of `imports`."""
    module = ".".join(source.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    names = public_names(source)
    found = {(module, ""), (module.rpartition(".")[0], module.rpartition(".")[2])}
    found |= {(module, name) for name in names}
    for folder in source.parents:
        init = folder / "__init__.py"
        if folder == ROOT or not init.exists():
            break
        offers = names & {name for given, name in imports(init) if given.startswith(module)}
        package = ".".join(folder.relative_to(ROOT).parts)
        found |= {(package, name) for name in offers}
    return found


def tests_of(source: Path) -> Iterator[Path]:
    """Yield the test files of a source file, or the folder of its room's tests."""
    wanted, files = spellings(source), sorted(TESTS.rglob("*.py"))
    helpers = {path.stem: path for path in files if not path.name.startswith(("test_", "conftest"))}
    direct = {path for path in files if imports(path) & wanted}
    reached = set(direct)
    while through := {
        path
        for path in files
        if path not in reached
        and any(helpers.get(module.partition(".")[0]) in reached for module, _ in imports(path))
    }:
        reached |= through
    found = [path for path in sorted(reached) if path.name.startswith("test_")]
    if found:
        yield from found
        return
    room = TESTS / source.relative_to(ROOT / "resumerge").with_suffix("")
    yield next(folder for folder in [room, *room.parents] if folder.is_dir())


if __name__ == "__main__":
    asked = Path(sys.argv[1]).resolve()
    if not asked.is_file() or not asked.is_relative_to(ROOT / "resumerge"):
        sys.exit(f"{sys.argv[1]} is no file of resumerge/")
    for path in tests_of(asked):
        print(path.relative_to(ROOT))
