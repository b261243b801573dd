"""The code that a file of merge methods imports, except installed packages: its hash pins a run.

Imports are read from the source, including imports inside functions, so that every machine and
every attempt finds the same modules. Python's own finders locate the file of a module; no code
runs.
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
"""The largest allowed size of a file of methods, or of a module that it imports, in bytes."""

_INSTALLED = {"site-packages", "dist-packages"}
_BY_NAME = {"import_module", "__import__"}
_RUNS_CODE = {"exec", "eval"}
_LOADS_CODE = {"run_path", "run_module", "exec_module", "load_module", "spec_from_file_location"}

PROCESS = uuid4().hex[:8]
"""A random word for this process: it makes the identity of unknown code differ in each process."""


def code_of_file(path: Path) -> str:
    """Return the identity of a file of methods: names and hashes of the file and of its imports.

    Modules of installed packages, of Python and of this package are left out. The identity contains
    the names of modules, but not their folders, which may differ between machines.

    Raises:
        UnfitFile: a file is too large, or not a regular file.
        OSError: a file cannot be read.
    """
    code = _Code()
    code.add(path.name, path, "")
    return code.identity


def code_of_module(name: str) -> str:
    """Return the identity of a module, as `code_of_file` does; "" for an installed module."""
    code = _Code()
    code.add_module(name)
    return code.identity


def unknown_code(origin: str) -> str:
    """Return the places in an origin at which unknown code may run; "" without such places."""
    places = map(_place_of_mark, origin.split("; "))
    return "; ".join(place for place in places if place)


def _with_mark(place: str) -> str:
    """Return a place where unknown code may run, with the mark of this process."""
    return f"{place} (process {PROCESS})"


def _place_of_mark(part: str) -> str:
    """Return the place in a part of an origin that this process marked; "" for any other part."""
    place = part.rpartition(" (process ")[0]
    return place if _with_mark(place) == part else ""


def _is_installed(path: Path) -> bool:
    """Return whether a file belongs to an installed package, to Python, or to this package."""
    library_folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    return (
        not _INSTALLED.isdisjoint(path.parts)
        or path.is_relative_to(PACKAGE)
        or any(path.is_relative_to(library_folder) for library_folder in library_folders)
    )


class _Code:
    """The files that a method's code consists of, and the places that may run unknown code."""

    def __init__(self) -> None:
        self._hashes: dict[str, str] = {}
        self._unknown: list[str] = []
        self._folders: list[str] = []
        """The folders of these files, which their code may have added to ``sys.path``."""

    @property
    def identity(self) -> str:
        names = [*list(self._hashes)[:1], *sorted(list(self._hashes)[1:])]
        parts = [f"{name}, sha256 {self._hashes[name]}" for name in names]
        return "; ".join([*parts, *map(_with_mark, self._unknown)])

    def add(self, name: str, path: Path, package: str) -> None:
        """Add a file and the modules that it imports.

        Args:
            name: the module's name; for the file of methods itself, the file's name.
            path: the file, which is read and hashed, even if it is a compiled module.
            package: the package that relative imports start from.
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
        """Add a module and the packages that contain it; installed packages are left out."""
        name_parts = name.split(".")
        search_paths: list[str] | None = None
        if not all(name_parts):
            return  # a relative import beyond the outermost package fails when it runs
        for count in range(1, len(name_parts) + 1):
            module_name = ".".join(name_parts[:count])
            spec = self._spec(module_name, search_paths)
            if spec is None or spec.origin in ("built-in", "frozen"):
                return
            locations = spec.submodule_search_locations
            search_paths = None if locations is None else [*locations]
            if spec.has_location and spec.origin:
                path = Path(spec.origin).resolve()
                if _is_installed(path):
                    return
                self.add(
                    module_name,
                    path,
                    module_name if search_paths is not None else module_name.rpartition(".")[0],
                )
            if search_paths is None:
                return

    def _spec(self, name: str, places: list[str] | None) -> ModuleSpec | None:
        """Return a module's spec from Python's finders, or None; `_folders` are searched last."""
        for search_paths in (places, self._folders) if places is None else (places,):
            for finder in sys.meta_path:
                # For the full name, PathFinder looks up the parent of a package without __init__.py
                # in sys.modules. The parent may be missing there; the last part is enough.
                searched_name = name.rpartition(".")[2] if finder is PathFinder else name
                spec = finder.find_spec(searched_name, search_paths)
                if spec is not None:
                    return spec
        return None


def _imports(tree: ast.AST, package: str) -> Iterator[tuple[str, int]]:
    """Yield (module, line) for each import of the code; "" for a module that is not known."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent_names = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(parent_names if node.level else ()), *filter(None, [node.module])])
            for alias in node.names:
                yield (f"{base}.{alias.name}" if alias.name != "*" else base), node.lineno
                if alias.asname and alias.name in _BY_NAME | _LOADS_CODE:
                    yield "", node.lineno
        elif isinstance(node, ast.Call):
            yield from _called(node)


def _called(node: ast.Call) -> Iterator[tuple[str, int]]:
    """Yield (module, line) if a call imports a module, as `_imports` does."""
    is_attribute = isinstance(node.func, ast.Attribute)
    name = getattr(node.func, "attr" if is_attribute else "id", "")
    module = node.args[0] if node.args else None
    is_literal = isinstance(module, ast.Constant) and isinstance(module.value, str)
    if name in _BY_NAME and is_literal and len(node.args) == 1:
        yield str(module.value), node.lineno  # type: ignore[union-attr]
    elif name in _BY_NAME | _LOADS_CODE or (name in _RUNS_CODE and not is_attribute):
        yield "", node.lineno
