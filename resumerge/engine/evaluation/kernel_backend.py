"""The backend of methods that compute with kernels. It passes them a whole block run at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from resumerge.engine.evaluation.method_failures import (
    described,
    failures_named,
    wrong_result,
)
from resumerge.kernels import BlockRun, l1_norms
from resumerge.methods import KernelMethod
from resumerge.methods.checked_answers import is_users
from resumerge.native import Vector
from resumerge.tensors import Merged


class KernelBackend:
    """A backend that computes the blocks of one tensor with kernels.

    Attributes:
        is_users: whether the method is a user's, whose results have to be checked.
    """

    def __init__(self, merged: Merged) -> None:
        assert isinstance(merged.merge_method, KernelMethod)
        self._merged, self._method, self._tensor = merged, merged.merge_method, merged.context
        self.is_users = is_users(merged.method)

    def map(
        self,
        function: Callable[[list[Vector], BlockRun], Any],
        inputs: list[Vector],
        run: BlockRun,
    ) -> list[Any]:
        """Call a map function of `statistics`; return its one partial result for all blocks."""
        return [function(inputs, run)]

    def given(self, inputs: list[Vector], run: BlockRun) -> list[Vector]:
        """Return the vectors that a map function receives, which the next call overwrites."""
        return inputs

    def compute(self, inputs: list[Vector], run: BlockRun, statistics: Any, out: Vector) -> None:
        """Compute blocks into `out`, rounded to the type of `out`.

        Raises:
            Resumable: a user's method fails, does not write all blocks, or returns a value.
        """
        checks_values = self.is_users and _are_finite(inputs)
        if checks_values:
            out.data.view(np.uint8).fill(0xFF)  # NaN, so that unwritten elements are found below
        with failures_named(self._merged):
            result: Any = self._method.compute(self._tensor, inputs, run, statistics, out)
        if result is not None:
            expected_result = "None: results go to `out`"
            raise wrong_result(self._merged, run.in_tensor(), expected_result, described(result))
        if checks_values and not _are_finite([out]):
            expected_result = "finite numbers in all of `out`, as all inputs are"
            raise wrong_result(self._merged, run.in_tensor(), expected_result, "NaN or infinity")


def _are_finite(vectors: Sequence[Vector]) -> bool:
    """Return whether vectors contain neither NaN nor infinity."""
    return all(np.isfinite(l1_norms(v, None, BlockRun(0, len(v), len(v)))).all() for v in vectors)
