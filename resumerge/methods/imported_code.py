"""The code that a file of merge methods imports, except installed packages: its hash pins a run.

Imports are found in the source, also those inside functions, so that every machine and every
attempt finds the same ones. Python's own finders find the file of a module; no code runs.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from uuid import uuid4

from resumerge.foreign_files import read_foreign
from resumerge.methods.user_code import PACKAGE

LARGEST = 1 << 24
"""The largest size of a file of methods, or of a module that it imports, in bytes."""

_INSTALLED = {"site-packages", "dist-packages"}
_BY_NAME = {"import_module", "__import__"}
_RUNS_CODE = {"exec", "eval"}
_LOADS_CODE = {"run_path", "run_module", "exec_module", "load_module", "spec_from_file_location"}

PROCESS = uuid4().hex[:8]
"""A word that no other process has: unknown code cannot be the same in two processes."""


def code_of_file(path: Path) -> str:
    """Return the identity of a file of methods: name and hash, of it and of the files it imports.

    Modules of installed packages, of Python and of this package are left out. The identity has the
    names of modules, not their folders, which may differ between machines.

    Raises:
        UnfitFile: a file is too large, or no file.
        OSError: a file cannot be read.
    """
    code = _Code()
    code.add(path.name, path, "")
    return code.described


def code_of_module(name: str) -> str:
    """Return the identity of a module, as `code_of_file`; empty for an installed one."""
    code = _Code()
    code.add_module(name)
    return code.described


def unknown_code(origin: str) -> str:
    """Return the parts of a method's code that cannot be known; empty if there are none."""
    places = map(_marked, origin.split("; "))
    return "; ".join(place for place in places if place)


def _mark(place: str) -> str:
    """Return a place where any code may run, marked as known to this process alone."""
    return f"{place} (process {PROCESS})"


def _marked(part: str) -> str:
    """Return the place of a part of an origin that this process marked; empty for another part."""
    place = part.rpartition(" (process ")[0]
    return place if _mark(place) == part else ""


def _is_installed(path: Path) -> bool:
    """Return whether a file is of an installed package, of Python, or of this package."""
    places = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    return (
        not _INSTALLED.isdisjoint(path.parts)
        or path.is_relative_to(PACKAGE)
        or any(path.is_relative_to(place) for place in places)
    )


class _Code:
    """The files that a method's code consists of, and the places that may run unknown code."""

    def __init__(self) -> None:
        self._hashes: dict[str, str] = {}
        self._unknown: list[str] = []
        self._folders: list[str] = []
        """The folders of these files, where an import may look after a change of ``sys.path``."""

    @property
    def described(self) -> str:
        names = [*list(self._hashes)[:1], *sorted(list(self._hashes)[1:])]
        parts = [f"{name}, sha256 {self._hashes[name]}" for name in names]
        return "; ".join([*parts, *map(_mark, self._unknown)])

    def add(self, name: str, path: Path, package: str) -> None:
        """Add a file and the modules that it imports.

        Args:
            name: the module's name; for the file of methods itself, the file's name.
            path: the file.
            package: the package that relative imports begin from.
        """
        if name in self._hashes:
            return
        source = read_foreign(path, LARGEST)
        self._hashes[name] = hashlib.sha256(source).hexdigest()
        if path.suffix != ".py":
            return  # a compiled module
        folder = str(path.parent)
        if folder not in self._folders:
            self._folders.append(folder)
        for module, line in _imports(ast.parse(source), package):
            if module:
                self.add_module(module)
            else:
                self._unknown.append(f"line {line} of {path.name} may run any code")

    def add_module(self, name: str) -> None:
        """Add a module and the packages that contain it, unless they are installed."""
        parts = name.split(".")
        places: list[str] | None = None
        if not all(parts):
            return  # beyond the outermost package: an error when it runs
        for count in range(1, len(parts) + 1):
            inner = ".".join(parts[:count])
            spec = self._spec(inner, places)
            if spec is None or spec.origin in ("built-in", "frozen"):
                return
            within = spec.submodule_search_locations
            places = None if within is None else [*within]
            if spec.has_location and spec.origin:
                path = Path(spec.origin).resolve()
                if _is_installed(path):
                    return
                self.add(inner, path, inner if places is not None else inner.rpartition(".")[0])
            if places is None:
                return

    def _spec(self, name: str, places: list[str] | None) -> ModuleSpec | None:
        """Return where a module is, by Python's finders; in `_folders` as a last resort."""
        for search_paths in (places, self._folders) if places is None else (places,):
            for finder in sys.meta_path:
                # With the full name, PathFinder would look up the parent of a package without
                # __init__.py in sys.modules, where it need not be. The last part is enough for it.
                searched_name = name.rpartition(".")[2] if finder is PathFinder else name
                spec = finder.find_spec(searched_name, search_paths)
                if spec is not None:
                    return spec
        return None


def _imports(tree: ast.AST, package: str) -> Iterator[tuple[str, int]]:
    """Yield the name of each module that code may import, and the line; "" if it is unknown."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(above if node.level else ()), *filter(None, [node.module])])
            for alias in node.names:
                yield (f"{base}.{alias.name}" if alias.name != "*" else base), node.lineno
                if alias.asname and alias.name in _BY_NAME | _LOADS_CODE:
                    yield "", node.lineno
        elif isinstance(node, ast.Call):
            yield from _called(node)


def _called(node: ast.Call) -> Iterator[tuple[str, int]]:
    """Yield the modules that a call imports, as `_imports` does."""
    of_module = isinstance(node.func, ast.Attribute)
    name = getattr(node.func, "attr" if of_module else "id", "")
    module = node.args[0] if node.args else None
    literal = isinstance(module, ast.Constant) and isinstance(module.value, str)
    if name in _BY_NAME and literal and len(node.args) == 1:
        yield str(module.value), node.lineno  # type: ignore[union-attr]
    elif name in _BY_NAME | _LOADS_CODE or (name in _RUNS_CODE and not of_module):
        yield "", node.lineno
