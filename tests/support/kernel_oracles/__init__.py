"""The kernels once more, with torch and NumPy: the compiled ones must be equal to them bit by bit.

Each function has the name and the arguments of one in `resumerge.native._kernels`, and uses only
the type of vectors from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest import MonkeyPatch

from kernel_oracles import (
    changes,
    elementwise,
    masks,
    measurements,
    quantised,
    reductions,
    selection,
    task_vectors,
)
from kernel_oracles.vectors import TORCH, tensor_of, write
from resumerge.native import _kernels

__all__ = ["ORACLES", "TORCH", "computed_by_oracles", "tensor_of", "write"]

ORACLES: dict[str, Callable[..., Any]] = {
    name: getattr(subject, name)
    for subject in (
        measurements,
        changes,
        elementwise,
        masks,
        quantised,
        reductions,
        selection,
        task_vectors,
    )
    for name in dir(_kernels)
    if hasattr(subject, name) and name[0].islower()
}
"""The oracles by the names of the kernels."""

SUMS = frozenset(
    {"weighted_sum", "weighted_sum_along", "trimmed_mean", "add_task_vectors", "add_voted_sum"}
    | {"add_mean_change", "add_majority_mean", "gram", "column_gram", "l1_norms"}
    | {"sums_of_squares"}
)
"""The kernels that return whether a float32 overflowed."""


@contextmanager
def computed_by_oracles() -> Iterator[None]:
    """Have the oracles compute everything that `resumerge.kernels` computes in this process.

    They always return that a float32 may have overflowed: the consequences depend on the numbers
    alone.
    """
    with MonkeyPatch.context() as patch:
        for name, oracle in ORACLES.items():
            patch.setattr(_kernels, name, _overflowing(oracle) if name in SUMS else oracle)
        yield


def _overflowing(oracle: Callable[..., Any]) -> Callable[..., bool]:
    def compute(*arguments: Any) -> bool:
        oracle(*arguments)
        return True

    return compute
