"""Tensors that no file has: numbers that are all the same, or drawn."""

from resumerge.tensors.generated.drawn import Drawn
from resumerge.tensors.generated.filled import Filled

__all__ = ["Drawn", "Filled"]
