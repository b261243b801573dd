"""Arithmetic that several methods share. All of it streams, and gives the same bits each time.

Names are imported when first used: listing the methods must not cost an import of torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resumerge.methods.kernels.accumulate import added, plain_sum, sum_added, weighted_sum
    from resumerge.methods.kernels.along import (
        column_gram,
        row_gram,
        weighted_sum_by_column,
        weighted_sum_by_row,
    )
    from resumerge.methods.kernels.changes import averaged_changes, changed_counts
    from resumerge.methods.kernels.consensus import SMALLEST_DIVISOR, agreeing_sum
    from resumerge.methods.kernels.differences import count_nonzero, less_base, variance
    from resumerge.methods.kernels.divergence import importance, joined, row_divergences
    from resumerge.methods.kernels.energies import squares, weighted_majority
    from resumerge.methods.kernels.keys import (
        from_ordered_bits,
        magnitude_bits,
        ordered_bits,
        quickest,
    )
    from resumerge.methods.kernels.limits import limited
    from resumerge.methods.kernels.masks import keep_only
    from resumerge.methods.kernels.order import trimmed_mean
    from resumerge.methods.kernels.random import draw_between, random_mask
    from resumerge.methods.kernels.ranks import kept_by_rank
    from resumerge.methods.kernels.reduce import absolute_sum, absolute_sums, gram, summed
    from resumerge.methods.kernels.selected import Band, Selection
    from resumerge.methods.kernels.selection import order_statistics, select, select_largest
    from resumerge.methods.kernels.selection_memory import selection_bytes
    from resumerge.methods.kernels.sparse import combined
    from resumerge.methods.kernels.spectral import isotropic
    from resumerge.methods.kernels.votes import voted_sum

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
    "less_base",
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
    "Band": "selected",
    "SMALLEST_DIVISOR": "consensus",
    "Selection": "selected",
    "absolute_sum": "reduce",
    "absolute_sums": "reduce",
    "added": "accumulate",
    "agreeing_sum": "consensus",
    "averaged_changes": "changes",
    "changed_counts": "changes",
    "column_gram": "along",
    "combined": "sparse",
    "count_nonzero": "differences",
    "draw_between": "random",
    "from_ordered_bits": "keys",
    "gram": "reduce",
    "importance": "divergence",
    "isotropic": "spectral",
    "joined": "divergence",
    "keep_only": "masks",
    "kept_by_rank": "ranks",
    "less_base": "differences",
    "limited": "limits",
    "magnitude_bits": "keys",
    "order_statistics": "selection",
    "ordered_bits": "keys",
    "plain_sum": "accumulate",
    "quickest": "keys",
    "random_mask": "random",
    "row_divergences": "divergence",
    "row_gram": "along",
    "select": "selection",
    "select_largest": "selection",
    "selection_bytes": "selection_memory",
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
