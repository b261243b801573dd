"""The origins of merge methods: this package, installed packages, and files of the user."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import pkgutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from resumerge.errors import refuse
from resumerge.foreign_files import UnfitFile, read_foreign
from resumerge.methods.base import MergeMethod
from resumerge.methods.imported_code import LARGEST, code_of_file, code_of_module
from resumerge.methods.user_code import refused

GROUP = "resumerge.methods"
"""The group of the entry points that name subclasses of `MergeMethod`."""

VARIABLE = "RESUMERGE_METHODS"
"""The environment variable that lists files of methods, separated as in PATH."""


def built_in_methods() -> Iterator[MergeMethod]:
    """Yield every method that a module in a subfolder of this folder defines.

    The methods are ordered by folder, then by module.
    """
    methods_folder = Path(__file__).parent
    for folder in pkgutil.iter_modules([str(methods_folder)]):
        if folder.ispkg:
            for module in pkgutil.iter_modules([str(methods_folder / folder.name)]):
                name = f"{__package__}.{folder.name}.{module.name}"
                yield from methods_of(import_module(name))


def installed_methods() -> Iterator[tuple[MergeMethod, str]]:
    """Yield the methods that installed packages declare as entry points, each with its origin.

    Raises:
        InputError: a method cannot be loaded.
    """
    from importlib.metadata import entry_points  # takes 20 ms; only methods of users need it

    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        distribution = entry.dist
        with refused("An installed merge method failed to load", f"{entry.name} = {entry.value}"):
            method = entry.load()()
            origin = f"{distribution.name} {distribution.version}" if distribution else entry.value
            # The code of a package that is installed from its folder may change without a new
            # version.
            code = code_of_module(type(method).__module__)
        yield method, "; ".join(filter(None, [origin, code]))


def methods_in_file(path: Path) -> Iterator[tuple[MergeMethod, str]]:
    """Yield the methods that a Python file defines, each with its origin.

    Raises:
        InputError: the file cannot be read or run, or defines no method.
    """
    try:
        read_foreign(path, LARGEST)
    except (OSError, UnfitFile) as error:
        raise refuse(
            "A file of merge methods cannot be read",
            where=path,
            found=str(error),
            fix=f"check {VARIABLE}",
        ) from error
    with refused("A file of merge methods failed to run", path, str(path)):
        methods = methods_of(_import_file(path))
    if not methods:
        raise refuse(
            "A file of merge methods contains no merge method",
            where=path,
            expected="a subclass of resumerge.methods.Method with a name",
            fix="see docs/extending.md",
        )
    with refused("What a file of merge methods imports cannot be read", path, str(path)):
        origin = code_of_file(path)
    return iter([(method, origin) for method in methods])


def methods_of(module: ModuleType) -> list[MergeMethod]:
    """Return the methods that a module defines itself, in their order, without imported methods."""
    return [
        kind()
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and issubclass(kind, MergeMethod)
        and kind.__module__ == module.__name__
        and not inspect.isabstract(kind)
        and hasattr(kind, "name")
    ]


def _import_file(path: Path) -> ModuleType:
    name = f"resumerge_methods_{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise refuse(
            "A file of merge methods is not a Python file",
            where=path,
            expected="a name ending in .py",
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
