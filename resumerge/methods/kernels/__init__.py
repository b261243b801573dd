"""Arithmetic that several methods share. All of it streams, and gives the same bits each time.

Names are imported when first used: listing the methods must not cost an import of torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resumerge.methods.kernels.accumulate import added, weighted_sum, zeros_like
    from resumerge.methods.kernels.consensus import (
        SMALLEST_DIVISOR,
        agreeing,
        agreeing_sum,
        majority,
        plain_sum,
    )
    from resumerge.methods.kernels.differences import less_base, variance
    from resumerge.methods.kernels.keys import from_ordered_bits, magnitude_bits, ordered_bits
    from resumerge.methods.kernels.masks import equals, keep_above, keep_only, reaches
    from resumerge.methods.kernels.order import sort_over
    from resumerge.methods.kernels.random import draw_between, random_mask
    from resumerge.methods.kernels.ranks import kept_by_rank
    from resumerge.methods.kernels.reduce import absolute_sum, absolute_sums, gram, row_gram, summed
    from resumerge.methods.kernels.selection import (
        Band,
        Selection,
        order_statistics,
        select,
        select_largest,
    )
    from resumerge.methods.kernels.selection_memory import selection_bytes
    from resumerge.methods.kernels.sparse import combined
    from resumerge.methods.kernels.spectral import isotropic

__all__ = [
    "SMALLEST_DIVISOR",
    "Band",
    "Selection",
    "absolute_sum",
    "absolute_sums",
    "added",
    "agreeing",
    "agreeing_sum",
    "combined",
    "draw_between",
    "equals",
    "from_ordered_bits",
    "gram",
    "isotropic",
    "keep_above",
    "keep_only",
    "kept_by_rank",
    "less_base",
    "magnitude_bits",
    "majority",
    "order_statistics",
    "ordered_bits",
    "plain_sum",
    "random_mask",
    "reaches",
    "row_gram",
    "select",
    "select_largest",
    "selection_bytes",
    "sort_over",
    "summed",
    "variance",
    "weighted_sum",
    "zeros_like",
]

_HOMES = {
    "Band": "selection",
    "SMALLEST_DIVISOR": "consensus",
    "Selection": "selection",
    "absolute_sum": "reduce",
    "absolute_sums": "reduce",
    "added": "accumulate",
    "agreeing": "consensus",
    "agreeing_sum": "consensus",
    "combined": "sparse",
    "draw_between": "random",
    "equals": "masks",
    "from_ordered_bits": "keys",
    "gram": "reduce",
    "isotropic": "spectral",
    "keep_above": "masks",
    "keep_only": "masks",
    "kept_by_rank": "ranks",
    "less_base": "differences",
    "magnitude_bits": "keys",
    "majority": "consensus",
    "order_statistics": "selection",
    "ordered_bits": "keys",
    "plain_sum": "consensus",
    "random_mask": "random",
    "reaches": "masks",
    "row_gram": "reduce",
    "select": "selection",
    "select_largest": "selection",
    "selection_bytes": "selection_memory",
    "sort_over": "order",
    "summed": "reduce",
    "variance": "differences",
    "weighted_sum": "accumulate",
    "zeros_like": "accumulate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(name)
    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
