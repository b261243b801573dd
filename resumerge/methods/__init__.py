"""Merge methods: each is one class, which declares its name, parameters, papers and costs.

`base.py` has the types, `registry.py` the methods by name, and `loading.py` finds them. The folders
`averages/`, `pairs/`, `spherical/` and `task_vectors/` have the built-in methods by family; a class
in a module of a folder is registered by being there. `checked_answers.py` checks what methods of
users return.
Methods compute with `resumerge.kernels`, and import nothing else of the package but `errors.py`.
docs/extending.md explains how to write a method.
"""

from resumerge.kernels.blocks import Block, MapFunction, Run, Scan
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
    "KernelMethod",
    "MapFunction",
    "MergeMethod",
    "Method",
    "Paper",
    "Parameter",
    "Run",
    "Scan",
    "TensorContext",
    "Value",
    "Vector",
    "load_methods",
]
