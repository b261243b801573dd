"""The merge methods by name: those of this package, of installed packages, and of files.

A recipe names a method, never code: the code of a method that is not built in runs only where
whoever runs the merge installed it (entry points of the group ``resumerge.methods``) or named its
file (`load_methods`, the environment variable ``RESUMERGE_METHODS``).
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from resumerge.errors import InputError, refuse
from resumerge.methods.base import Method, Parameter

BUILT_IN = "built in"

GROUP = "resumerge.methods"
"""Entry points of this group name subclasses of `Method`."""

VARIABLE = "RESUMERGE_METHODS"
"""Files of methods, separated as in PATH."""


@dataclass(eq=False)
class Registry(Mapping[str, Method]):
    """Methods by name, each imported when it is first asked for; others than the built-in ones are
    looked for when one is first needed.

    Args:
        built_in: module of this package and class, by the method's name.
    """

    built_in: Mapping[str, str]
    _methods: dict[str, Method] = field(default_factory=dict)
    _origins: dict[str, str] = field(default_factory=dict)
    _loaded: set[Path] = field(default_factory=set)
    _searched: bool = False

    def __getitem__(self, name: str) -> Method:
        if name in self.built_in:
            return self._built_in(name)
        if name not in self._methods:
            self._search()
        return self._methods[name]

    def __contains__(self, name: object) -> bool:
        return name in self.built_in or super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        self._search()
        return iter((*self.built_in, *self._others()))

    def __len__(self) -> int:
        self._search()
        return len(self.built_in) + len(self._others())

    def add(self, method: Method, origin: str) -> None:
        """Register a method.

        Args:
            origin: where its code is from; part of its identity.

        Raises:
            InputError: it is not declared as a method must be, or its name is taken.
        """
        problem = _undeclared(method)
        if problem:
            raise refuse(f"{type(method).__name__} is no merge method", where=origin, found=problem)
        if method.name in (*self.built_in, *self._methods):
            raise refuse(
                f"There already is a merge method {method.name!r}",
                where=origin,
                found=f"another one ({self._origins.get(method.name, BUILT_IN)})",
                fix="give yours another name",
            )
        self._methods[method.name] = method
        self._origins[method.name] = origin

    def load(self, files: Iterable[str | os.PathLike[str]]) -> None:
        """Register every method that is defined in some Python files; those known already stay.

        Raises:
            InputError: a file cannot be read or run, or has no method in it.
        """
        for file in files:
            path = Path(file).expanduser().resolve()
            if path in self._loaded:
                continue
            source = _read(path)
            module = _run(path)
            found = [m for m in vars(module).values() if _is_method(m, module.__name__)]
            if not found:
                raise refuse(
                    "There is no merge method in a file",
                    where=path,
                    expected="a subclass of resumerge.methods.Method with a name",
                    fix="see docs/extending.md",
                )
            for method in found:
                self.add(method(), f"{path.name}, sha256 {hashlib.sha256(source).hexdigest()}")
            self._loaded.add(path)

    def identity(self, name: str) -> dict[str, Any]:
        """What a run's fingerprint says of a method: its bytes depend on it."""
        method, origin = self[name], self._origins.get(name, BUILT_IN)
        return {"name": name, "version": method.version, "origin": origin}

    def _built_in(self, name: str) -> Method:
        if name not in self._methods:
            module, _, kind = self.built_in[name].rpartition(".")
            package = import_module(f"resumerge.methods.{module}")
            self._methods[name] = getattr(package, kind)()
        return self._methods[name]

    def _others(self) -> list[str]:
        return [name for name in self._methods if name not in self.built_in]

    def _search(self) -> None:
        """Load what is installed and what the environment names, once."""
        if self._searched:
            return
        self._searched = True
        from importlib.metadata import entry_points  # slow to import, and slow

        try:
            for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
                package = entry.dist
                origin = f"{package.name} {package.version}" if package else entry.value
                self.add(entry.load()(), origin)
            self.load(file for file in os.environ.get(VARIABLE, "").split(os.pathsep) if file)
        except InputError:
            self._searched = False
            raise


def _is_method(found: Any, module: str) -> bool:
    import inspect  # slow to import

    return (
        inspect.isclass(found)
        and issubclass(found, Method)
        and found.__module__ == module
        and not inspect.isabstract(found)
        and hasattr(found, "name")
    )


def _undeclared(method: Method) -> str | None:
    """What a method's declaration lacks."""
    for attribute in ("name", "summary"):
        if not isinstance(getattr(method, attribute, None), str):
            return f"no {attribute}"
    if not all(isinstance(parameter, Parameter) for parameter in method.parameters):
        return "parameters that are no Parameter"
    return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise refuse(
            "A file of merge methods cannot be read",
            where=path,
            found=str(error),
            fix=f"check {VARIABLE}",
        ) from error


def _run(path: Path) -> ModuleType:
    import importlib.util

    name = f"resumerge_methods_{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise refuse(
            "A file of merge methods is no Python file", where=path, expected="a name ending in .py"
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise refuse(
            "A file of merge methods does not run",
            where=path,
            found=f"{type(error).__name__}: {error}",
        ) from error
    return module


METHODS = Registry(
    {
        "linear": "averages.linear.Linear",
        "slerp": "spherical.slerp.Slerp",
        "nuslerp": "spherical.nuslerp.NuSlerp",
        "multislerp": "spherical.multislerp.MultiSlerp",
        "karcher": "spherical.karcher.Karcher",
        "task_arithmetic": "task_vectors.base.TaskArithmetic",
        "ties": "task_vectors.ties.Ties",
        "dare_linear": "task_vectors.dare.DareLinear",
        "dare_ties": "task_vectors.dare.DareTies",
        "della": "task_vectors.della.Della",
        "della_linear": "task_vectors.della.DellaLinear",
        "breadcrumbs": "task_vectors.breadcrumbs.Breadcrumbs",
        "breadcrumbs_ties": "task_vectors.breadcrumbs.BreadcrumbsTies",
        "sce": "task_vectors.sce.Sce",
        "model_stock": "averages.model_stock.ModelStock",
        "nearswap": "pairs.nearswap.NearSwap",
        "arcee_fusion": "pairs.arcee_fusion.ArceeFusion",
        "ram": "task_vectors.ram.Ram",
        "ramplus_tl": "task_vectors.ram.RamPlus",
        "consensus_ta": "task_vectors.consensus_ta.ConsensusTaskArithmetic",
        "iso_c": "task_vectors.iso_c.IsoC",
        "trimmed_mean": "averages.trimmed_mean.TrimmedMean",
        "passthrough": "averages.passthrough.Passthrough",
    }
)


def load_methods(files: Iterable[str | os.PathLike[str]]) -> None:
    """Make the merge methods in some Python files known to this process; see `Registry.load`."""
    METHODS.load(files)
