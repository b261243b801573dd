"""Tensors that lie in files, also those whose elements are not contiguous there."""

from resumerge.tensors.stored.stored import Stored, stored_in, with_stored

__all__ = ["Stored", "stored_in", "with_stored"]
