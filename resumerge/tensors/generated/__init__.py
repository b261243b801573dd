"""Tensors that no file has: numbers that are all the same, or drawn, and directions of prompts."""

from resumerge.tensors.generated.directions import Directions, Prompts, unit
from resumerge.tensors.generated.drawn import Drawn
from resumerge.tensors.generated.filled import Filled

__all__ = ["Directions", "Drawn", "Filled", "Prompts", "unit"]
