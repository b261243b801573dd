"""Tensors that are in no file: their numbers are all equal, drawn at random, or listed.

`filled` has tensors of one number, `drawn` of random numbers, and `literal` of listed numbers.
"""

from resumerge.tensors.generated.drawn import Drawn
from resumerge.tensors.generated.filled import Filled
from resumerge.tensors.generated.literal import Literal

__all__ = ["Drawn", "Filled", "Literal"]
