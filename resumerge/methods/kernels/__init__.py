"""Arithmetic that several methods share. All of it streams, and gives the same bits each time.

Names are imported when first used: listing the methods must not cost an import of torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resumerge.methods.kernels.consensus import SMALLEST_DIVISOR, agreeing_sum, plain_sum
    from resumerge.methods.kernels.random import drop_at_random
    from resumerge.methods.kernels.reduce import absolute_sum, dots
    from resumerge.methods.kernels.selection import Selection, select_largest

__all__ = [
    "SMALLEST_DIVISOR",
    "Selection",
    "absolute_sum",
    "agreeing_sum",
    "dots",
    "drop_at_random",
    "plain_sum",
    "select_largest",
]

_HOMES = {
    "SMALLEST_DIVISOR": "consensus",
    "Selection": "selection",
    "absolute_sum": "reduce",
    "agreeing_sum": "consensus",
    "dots": "reduce",
    "drop_at_random": "random",
    "plain_sum": "consensus",
    "select_largest": "selection",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(name)
    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
