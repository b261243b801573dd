"""The merge methods by name: built in, from installed packages, and from files of the user.

A recipe names a method and never contains code. The code of a method that is not built in runs only
if the user installed its package (entry points of the group ``resumerge.methods``) or named its
file (`load_methods`, the environment variable ``RESUMERGE_METHODS``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from resumerge.errors import InputError, refuse
from resumerge.methods.base import MergeMethod, Parameter
from resumerge.methods.imported_code import unknown_code
from resumerge.methods.loading import (
    VARIABLE,
    built_in_methods,
    installed_methods,
    methods_in_file,
)

BUILT_IN = "built in"
BASES = ("none", "optional", "required")
KINDS = ("float", "int", "bool")


class Registry(Mapping[str, MergeMethod]):
    """The methods by name.

    Installed methods and the files in ``RESUMERGE_METHODS`` are loaded on first use: when a name is
    looked up that is not registered, or when the registry is iterated over or counted. Loading runs
    code of users. It raises `InputError` if that code cannot be run or defines no method.

    Args:
        built_in: the methods of this package, which are registered at once.
    """

    def __init__(self, built_in: Iterable[MergeMethod] = ()) -> None:
        self._methods: dict[str, MergeMethod] = {}
        self._origins: dict[str, str] = {}
        self._loaded: set[Path] = set()
        self._searched = False
        for method in built_in:
            self.add(method, BUILT_IN)

    def __getitem__(self, name: str) -> MergeMethod:
        if name not in self._methods:
            self._search()
        return self._methods[name]

    def __iter__(self) -> Iterator[str]:
        self._search()
        return iter(self._methods)

    def __len__(self) -> int:
        self._search()
        return len(self._methods)

    @property
    def built_in(self) -> list[str]:
        """The names of the methods of this package."""
        return [name for name, origin in self._origins.items() if origin == BUILT_IN]

    def add(self, method: MergeMethod, origin: str) -> None:
        """Register a method.

        Args:
            method: an instance of the method's class, whose declaration is checked.
            origin: the source of its code; part of its identity.

        Raises:
            InputError: the declaration is incomplete or invalid, or the name is taken.
        """
        problem = _incomplete(method)
        if problem:
            raise refuse(
                f"{type(method).__name__} is not a merge method", where=origin, found=problem
            )
        if method.name in self._methods:
            raise refuse(
                f"A merge method named {method.name!r} already exists",
                where=origin,
                found=f"another method ({self._origins[method.name]})",
                fix="give yours another name",
            )
        self._methods[method.name] = method
        self._origins[method.name] = origin

    def load(self, files: Iterable[str | os.PathLike[str]]) -> None:
        """Register every method that the Python files define. Each file is loaded once.

        Raises:
            InputError: a file cannot be read or run, or defines no method.
        """
        for file in files:
            path = Path(file).expanduser().resolve()
            if path in self._loaded:
                continue
            for method, origin in methods_in_file(path):
                self.add(method, origin)
            self._loaded.add(path)

    def identity(self, name: str) -> dict[str, Any]:
        """Return a method's part of a run's fingerprint: everything that its result depends on."""
        return {"name": name, "version": self[name].version, "origin": self._origins[name]}

    def notes_on(self, name: str) -> list[str]:
        """Return the notes on a method that the user sees before a run."""
        unknown_modules = unknown_code(self._origins.get(name, ""))
        if not unknown_modules:
            return []
        return [
            f"the run cannot be resumed, for the code of your method {name!r} may be another "
            f"one then: {unknown_modules}"
        ]

    def _search(self) -> None:
        """Load installed methods and the files that the environment names, once."""
        if self._searched:
            return
        self._searched = True
        try:
            for method, origin in installed_methods():
                self.add(method, origin)
            self.load(file for file in os.environ.get(VARIABLE, "").split(os.pathsep) if file)
        except InputError:
            self._searched = False
            raise


def _incomplete(method: MergeMethod) -> str | None:
    """Return the first missing or invalid part of a method's declaration; None if it is valid."""
    for attribute in ("name", "summary"):
        if not isinstance(getattr(method, attribute, None), str):
            return f"no {attribute}"
    if not isinstance(method.parameters, (tuple, list)) or not all(
        isinstance(parameter, Parameter) for parameter in method.parameters
    ):
        return "parameters that are not Parameter objects"
    for parameter in method.parameters:
        bounds = (parameter.low, parameter.high)
        if parameter.kind not in KINDS or not all(
            isinstance(bound, (int, float)) for bound in bounds
        ):
            return f"parameter {parameter.name!r} with an invalid kind or bound"
    if method.base not in BASES:
        return f"base = {method.base!r}, which is not one of {', '.join(BASES)}"
    for attribute in ("fewest", "most", "version"):
        value = getattr(method, attribute)
        if not isinstance(value, int) and not (attribute == "most" and value is None):
            return f"{attribute} = {value!r}, which is not a whole number"
    return None


METHODS = Registry(built_in_methods())


def load_methods(files: Iterable[str | os.PathLike[str]]) -> None:
    """Register the merge methods that Python files define; see `Registry.load`."""
    METHODS.load(files)
