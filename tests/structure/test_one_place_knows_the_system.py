"""Promise: only `host/system.py` decides what the operating system offers beyond POSIX."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import posix_only

import resumerge

PACKAGE = Path(resumerge.__file__).parent
SEAM = PACKAGE / "host" / "system.py"
NAMES = {module.__name__: set(names) for module, names in posix_only.MISSING.items()} | {
    "sys": {"platform"},
    "ctypes": {"CDLL"},
}
WORDS = re.compile("|".join([*posix_only.FOLDERS, *set().union(*NAMES.values())]))
LOADS_FOUND_LIBRARIES = "resumerge/host/blas.py"
"""The module that opens the files of libraries with `CDLL`, and not the C library."""


def uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, what) of each use of what only some systems have."""
    asked = {id(node) for call in ast.walk(tree) for node in _asked(call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in NAMES.get(node.value.id, ()) and not _is_argument_of_advice(node):
                yield node.lineno, f"{node.value.id}.{node.attr}"
        elif id(node) not in asked and _text(node).startswith(posix_only.FOLDERS):
            yield node.lineno, _text(node)


def _asked(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the arguments of a call of `kernel_file`, and every node in them."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "kernel_file":
        for argument in node.args:
            yield from ast.walk(argument)


def _text(node: ast.AST) -> str:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else ""


def _is_argument_of_advice(node: ast.Attribute) -> bool:
    return node.attr.startswith("POSIX_FADV_")  # its function was offered


def test_all_else_asks_there() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}:{line}": what
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != SEAM and not path.match(LOADS_FOUND_LIBRARIES)
        if WORDS.search(text := path.read_text(encoding="utf-8"))
        for line, what in uses(ast.parse(text))
    }
    assert found == {}


def test_uses_are_found() -> None:
    program = 'os.fdatasync(fd)\nsys.platform\nPath("/proc/stat")\nkernel_file(f"/proc/{pid}/stat")'
    assert sorted(uses(ast.parse(program))) == [
        (1, "os.fdatasync"),
        (2, "sys.platform"),
        (3, "/proc/stat"),
    ]
