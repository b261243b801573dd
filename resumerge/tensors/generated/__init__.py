"""Tensors that no file has: numbers that are all the same, drawn, or listed."""

from resumerge.tensors.generated.drawn import Drawn
from resumerge.tensors.generated.filled import Filled
from resumerge.tensors.generated.literal import Literal

__all__ = ["Drawn", "Filled", "Literal"]
