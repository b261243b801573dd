"""Merge methods. Each method is a class that declares its name, parameters, papers and costs.

`base.py` defines the base classes, `registry.py` holds the methods by name, and `loading.py` finds
them. The folders `averages/`, `pairs/`, `spherical/` and `task_vectors/` contain the built-in
methods by family; every method class in a module of these folders is registered.
`checked_answers.py` checks the values that methods return during planning. For methods of users,
`user_code.py` locates errors, and `imported_code.py` identifies the code. Methods compute with
`resumerge.kernels`. docs/extending.md explains how to write a method.

Users can call the package: `resumerge.methods()` returns all methods with their parameters, and
`resumerge.methods("ties")` returns one.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from resumerge.kernels.blocks import Block, BlockRun, MapFunction, Scan
from resumerge.methods.base import (
    BlockCost,
    KernelMethod,
    MergeMethod,
    Method,
    Paper,
    Parameter,
    TensorContext,
    Value,
)
from resumerge.methods.registry import METHODS, load_methods
from resumerge.native import Vector

__all__ = [
    "METHODS",
    "Block",
    "BlockCost",
    "BlockRun",
    "KernelMethod",
    "MapFunction",
    "MergeMethod",
    "Method",
    "Paper",
    "Parameter",
    "Scan",
    "TensorContext",
    "Value",
    "Vector",
    "load_methods",
]


class _Callable(ModuleType):
    """This package as a function: in Python ``resumerge.methods()`` lists the methods."""

    def __call__(self, name: str | None = None) -> dict[str, Any]:
        """Return the methods with their parameters, as `resumerge.api.methods` does."""
        # Imported by name, since this room must not depend on rooms above it.
        described: dict[str, Any] = import_module("resumerge.api").methods(name)
        return described


sys.modules[__name__].__class__ = _Callable
