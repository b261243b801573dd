"""Arithmetic that several methods share. All of it streams, and gives the same bits each time.

Names are imported when first used: listing the methods must not cost an import of torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resumerge.kernels.accumulate import added, plain_sum, sum_added, weighted_sum
    from resumerge.kernels.along import (
        column_gram,
        row_gram,
        weighted_sum_by_column,
        weighted_sum_by_row,
    )
    from resumerge.kernels.changes import averaged_changes, changed_counts
    from resumerge.kernels.consensus import SMALLEST_DIVISOR, agreeing_sum
    from resumerge.kernels.differences import count_nonzero, subtract_base, variance
    from resumerge.kernels.divergence import importance, joined, row_divergences
    from resumerge.kernels.energies import squares, weighted_majority
    from resumerge.kernels.limits import limited
    from resumerge.kernels.masks.drop import keep_only
    from resumerge.kernels.masks.random import draw_between, random_mask
    from resumerge.kernels.masks.ranks import kept_by_rank
    from resumerge.kernels.order import trimmed_mean
    from resumerge.kernels.reduce import absolute_sum, absolute_sums, gram, summed
    from resumerge.kernels.selection.keys import (
        from_ordered_bits,
        magnitude_bits,
        ordered_bits,
        quickest,
    )
    from resumerge.kernels.selection.memory import selection_bytes
    from resumerge.kernels.selection.selected import Band, Selection
    from resumerge.kernels.selection.selection import order_statistics, select, select_largest
    from resumerge.kernels.sparse import combined
    from resumerge.kernels.spectral import isotropic
    from resumerge.kernels.votes import voted_sum

__all__ = [
    "SMALLEST_DIVISOR",
    "Band",
    "Selection",
    "absolute_sum",
    "absolute_sums",
    "added",
    "agreeing_sum",
    "averaged_changes",
    "changed_counts",
    "column_gram",
    "combined",
    "count_nonzero",
    "draw_between",
    "from_ordered_bits",
    "gram",
    "importance",
    "isotropic",
    "joined",
    "keep_only",
    "kept_by_rank",
    "limited",
    "magnitude_bits",
    "order_statistics",
    "ordered_bits",
    "plain_sum",
    "quickest",
    "random_mask",
    "row_divergences",
    "row_gram",
    "select",
    "select_largest",
    "selection_bytes",
    "squares",
    "subtract_base",
    "sum_added",
    "summed",
    "trimmed_mean",
    "variance",
    "voted_sum",
    "weighted_majority",
    "weighted_sum",
    "weighted_sum_by_column",
    "weighted_sum_by_row",
]

_HOMES = {
    "Band": "selection.selected",
    "SMALLEST_DIVISOR": "consensus",
    "Selection": "selection.selected",
    "absolute_sum": "reduce",
    "absolute_sums": "reduce",
    "added": "accumulate",
    "agreeing_sum": "consensus",
    "averaged_changes": "changes",
    "changed_counts": "changes",
    "column_gram": "along",
    "combined": "sparse",
    "count_nonzero": "differences",
    "draw_between": "masks.random",
    "from_ordered_bits": "selection.keys",
    "gram": "reduce",
    "importance": "divergence",
    "isotropic": "spectral",
    "joined": "divergence",
    "keep_only": "masks.drop",
    "kept_by_rank": "masks.ranks",
    "subtract_base": "differences",
    "limited": "limits",
    "magnitude_bits": "selection.keys",
    "order_statistics": "selection.selection",
    "ordered_bits": "selection.keys",
    "plain_sum": "accumulate",
    "quickest": "selection.keys",
    "random_mask": "masks.random",
    "row_divergences": "divergence",
    "row_gram": "along",
    "select": "selection.selection",
    "select_largest": "selection.selection",
    "selection_bytes": "selection.memory",
    "squares": "energies",
    "sum_added": "accumulate",
    "summed": "reduce",
    "trimmed_mean": "order",
    "variance": "differences",
    "voted_sum": "votes",
    "weighted_majority": "energies",
    "weighted_sum": "accumulate",
    "weighted_sum_by_column": "along",
    "weighted_sum_by_row": "along",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(name)
    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
