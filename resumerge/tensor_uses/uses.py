"""What a tensor of a model is used for."""

from __future__ import annotations

from enum import IntEnum


class Use(IntEnum):
    """What a tensor of a model is used for; of several uses the last one in this order counts."""

    COPIED = 0
    """The tensor's numbers are in the output, at most rounded."""
    MERGED = 1
    """The output is computed from the tensor and from others, or from it by a formula."""
    EXPERTS = 2
    """The tensor has matrices of experts, which are packed or apart in the output, or as merged."""
    VOCABULARY = 3
    """The tensor has rows of tokens; the output has others, or another order of them."""
    CUT = 4
    """Only a part of the tensor is used."""

    @property
    def slug(self) -> str:
        """The name in ledgers and JSON."""
        return self.name.lower()
