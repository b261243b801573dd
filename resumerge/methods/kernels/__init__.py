"""Arithmetic that several methods share. All of it streams, and gives the same bits each time.

Names are imported when first used: listing the methods must not cost an import of torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resumerge.methods.kernels.accumulate import weighted_sum
    from resumerge.methods.kernels.consensus import (
        SMALLEST_DIVISOR,
        agreeing,
        agreeing_sum,
        majority,
        plain_sum,
    )
    from resumerge.methods.kernels.masks import keep_only
    from resumerge.methods.kernels.random import drop_at_random, drop_by_rank
    from resumerge.methods.kernels.ranks import ranks_by_magnitude
    from resumerge.methods.kernels.reduce import absolute_sum, dots, gram, row_gram, summed
    from resumerge.methods.kernels.selection import (
        Band,
        Selection,
        from_ordered_bits,
        magnitude_bits,
        order_statistics,
        ordered_bits,
        select,
        select_largest,
    )

_HOMES = {
    "SMALLEST_DIVISOR": "consensus",
    "Band": "selection",
    "Selection": "selection",
    "absolute_sum": "reduce",
    "agreeing": "consensus",
    "agreeing_sum": "consensus",
    "dots": "reduce",
    "drop_at_random": "random",
    "drop_by_rank": "random",
    "from_ordered_bits": "selection",
    "gram": "reduce",
    "keep_only": "masks",
    "magnitude_bits": "selection",
    "majority": "consensus",
    "order_statistics": "selection",
    "ordered_bits": "selection",
    "plain_sum": "consensus",
    "row_gram": "reduce",
    "ranks_by_magnitude": "ranks",
    "select": "selection",
    "select_largest": "selection",
    "summed": "reduce",
    "weighted_sum": "accumulate",
}

__all__ = [
    "SMALLEST_DIVISOR",
    "Band",
    "Selection",
    "absolute_sum",
    "agreeing",
    "agreeing_sum",
    "dots",
    "drop_at_random",
    "drop_by_rank",
    "from_ordered_bits",
    "gram",
    "keep_only",
    "magnitude_bits",
    "majority",
    "order_statistics",
    "ordered_bits",
    "plain_sum",
    "ranks_by_magnitude",
    "row_gram",
    "select",
    "select_largest",
    "summed",
    "weighted_sum",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(name)
    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
