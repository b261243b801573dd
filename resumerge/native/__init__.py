"""Kernels in C, compiled when the package is installed, and their Python side.

`library.py` finds the compiled library, `call.py` passes arguments to it, `vector.py` has its
vectors; the other modules have one function for each kernel. `resumerge.kernels` calls them, and
states what each computes; without the compiled library it computes the same bits with torch, more
slowly. This package imports nothing else of resumerge.
"""

from resumerge.native.library import instruction_set, is_missing
from resumerge.native.vector import CODES, Vector

__all__ = ["CODES", "Vector", "instruction_set", "is_missing"]
