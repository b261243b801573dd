"""Merge methods: each is one class, which declares its name, parameters, papers and costs.

`base.py` has the types, `registry.py` the methods by name, and `loading.py` finds them. The folders
have the built-in methods by family; a class in a module of a folder is registered by being there.
Methods compute with `resumerge.kernels`, and import nothing else of the package but `errors.py`.
docs/extending.md explains how to write a method.
"""

from resumerge.kernels.blocks import Block, MapFunction, Scan
from resumerge.methods.base import BlockCost, Method, Paper, Parameter, TensorContext, Value
from resumerge.methods.registry import METHODS, load_methods

__all__ = [
    "METHODS",
    "Block",
    "BlockCost",
    "MapFunction",
    "Method",
    "Paper",
    "Parameter",
    "Scan",
    "TensorContext",
    "Value",
    "load_methods",
]
