"""Tensors that are stored in files, whether or not their elements are contiguous.

`stored` has the tensors, and `strided` reads ranges of elements that are not contiguous.
"""

from resumerge.tensors.stored.stored import Stored, stored_in, with_stored

__all__ = ["Stored", "stored_in", "with_stored"]
