"""The uses of a model's tensors."""

from __future__ import annotations

from enum import IntEnum


class Use(IntEnum):
    """A use of a model's tensor. If a tensor has several uses, the last in this order counts."""

    COPIED = 0
    """The tensor's numbers are in the output, at most rounded."""
    MERGED = 1
    """The output is computed from this and other tensors, or from this tensor by a formula."""
    EXPERTS = 2
    """The tensor has matrices of experts, which the output packs or splits, copied or merged."""
    VOCABULARY = 3
    """The tensor has rows of tokens. The output has other rows, or the rows in another order."""
    CUT = 4
    """Only a part of the tensor is used."""

    @property
    def slug(self) -> str:
        """The name in ledgers and JSON."""
        return self.name.lower()
