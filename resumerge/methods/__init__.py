"""Merge methods: one small file a family, and the kernels they share."""

from resumerge.methods.base import Block, Method, Paper, Parameter, Scan, TensorContext, Value
from resumerge.methods.registry import METHODS, load_methods

__all__ = [
    "METHODS",
    "Block",
    "Method",
    "Paper",
    "Parameter",
    "Scan",
    "TensorContext",
    "Value",
    "load_methods",
]
