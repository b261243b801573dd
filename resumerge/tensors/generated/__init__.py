"""Tensors that are in no file: their numbers are all equal, drawn at random, or listed."""

from resumerge.tensors.generated.drawn import Drawn
from resumerge.tensors.generated.filled import Filled
from resumerge.tensors.generated.literal import Literal

__all__ = ["Drawn", "Filled", "Literal"]
