"""Kernels in C, compiled when the package is installed, for merging without torch.

torch computes the same bits where they are missing, only slower; see docs/architecture.md.
"""

from resumerge.native.library import instruction_set
from resumerge.native.vector import CODES, Vector

__all__ = ["CODES", "Vector", "instruction_set"]
