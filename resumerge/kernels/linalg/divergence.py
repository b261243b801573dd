"""The importance of changes in Arcee fusion: Kullback-Leibler divergence of softmax rows.

torch computes the divergence, in float32 and in mergekit's order of operations. Between similar
models it is hardly larger than rounding errors. With more exact numbers, or another order of
operations, the method would therefore keep other elements than mergekit does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_SMALLEST_SHARE = 1e-8


def row_divergences(values: Tensor, others: Tensor, row: int) -> Tensor:
    """Return ``KL(softmax(x) || softmax(y))`` of each row of flat float32 vectors x and y."""
    p = values.view(-1, row).softmax(dim=1).add_(_SMALLEST_SHARE)
    q = others.view(-1, row).softmax(dim=1).add_(_SMALLEST_SHARE)
    return (p / q).log_().mul_(p).sum(dim=1)


def concatenate(parts: Iterable[Tensor], length: int) -> Tensor:
    """Return the concatenated vectors of all blocks, `length` elements in total.

    Each vector is copied when it arrives, since many small, long-lived allocations would fragment
    the memory of the large allocations between them.
    """
    vector, start = None, 0
    for block_vector in parts:
        if vector is None:
            vector = block_vector.new_empty(length)
        vector[start : start + len(block_vector)] = block_vector
        start += len(block_vector)
    assert vector is not None
    return vector


def importance(values: Tensor, others: Tensor, divergences: Tensor, row: int, start: int) -> Tensor:
    """Return ``|x - y|`` times the divergence of the element's row, without changing x or y.

    Args:
        values: x, a flat float32 vector.
        others: y, a flat float32 vector of the same length.
        divergences: the divergences of all rows of the tensor.
        row: the number of elements of a row.
        start: the index in the tensor of the vectors' first element, which starts a row.
    """
    change = (values - others).abs_()
    whole_row_elements = len(change) // row * row
    first_row = start // row
    factors = divergences[first_row : first_row + -(-len(change) // row)]
    change[:whole_row_elements].view(-1, row).mul_(
        factors[: whole_row_elements // row].unsqueeze(1)
    )
    if whole_row_elements < len(change):  # a sample may end within a row
        change[whole_row_elements:].mul_(factors[-1])
    return change
