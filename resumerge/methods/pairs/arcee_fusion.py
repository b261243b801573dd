"""Arcee fusion: the base with only the most important changes of the other model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge import kernels
from resumerge.kernels.blocks import Block, BlockRun, Scan
from resumerge.kernels.linalg.divergence import concatenate, importance, row_divergences
from resumerge.methods.base import BlockCost, Method, Paper, TensorContext
from resumerge.native import Vector

if TYPE_CHECKING:
    from torch import Tensor


class ArceeFusion(Method):
    """``base + d`` where an element of ``d = x - base`` is important, else the base.

    The importance of an element is ``|d| * KL(softmax(x) || softmax(base))``. Softmax and
    divergence are computed in float32 over the element's row, a vector along the last dimension.
    An element is important if its importance is at least
    ``median + 1.5 * (upper quartile - lower quartile)`` of the whole tensor's importances. The
    quartiles are exact: each is one of the n importances, with index ``floor(q * (n-1))`` in
    ascending order.
    """

    name = "arcee_fusion"
    summary = "the other model's elements where the two differ most, else the base's"
    papers = (
        Paper(
            "Arcee's MergeKit: a toolkit for merging large language models",
            "https://arxiv.org/abs/2403.13257",
        ),
    )
    base = "required"
    fewest = 2
    most = 2
    cost = BlockCost(13.0, scratch=20.0)

    def statistics_bytes(self, tensor: TensorContext) -> int:
        rows = tensor.numel // max(1, self._row(tensor))
        return 4 * rows + kernels.selection_bytes(tensor.numel, [[0.25, 0.5, 0.75]])

    def passes(self, tensor: TensorContext) -> int:
        return 4

    def samples(self, tensor: TensorContext) -> int:
        return 1

    def row_elements(self, tensor: TensorContext) -> int | None:
        return self._row(tensor)

    def statistics(self, tensor: TensorContext, scan: Scan[Any]) -> tuple[Any, float]:
        """Return the divergence of each row, and the threshold of importance."""
        row = self._row(tensor)
        divergences = concatenate(
            scan(lambda x, block: row_divergences(*self._pair(tensor, x), row)),
            tensor.numel // row,
        )
        last_index = tensor.numel - 1
        ranks = [tensor.numel - share * last_index // 4 for share in (1, 2, 3)]

        def scan_importance(function: Any, sample: bool = False) -> Iterator[Any]:
            """Scan the importances of the elements; each block becomes a run of one block."""

            def of_block(x: list[Tensor], block: Block) -> Any:
                scores = Vector(self._importance(tensor, x, block, divergences).cpu().numpy())
                return function({0: scores}, BlockRun(block.index, len(scores), len(scores)))

            return scan(of_block, sample)

        keys = kernels.order_statistics(
            {0: ranks}, tensor.numel, scan_importance, kernels.Key.NUMBER
        )
        first_quartile, median, third_quartile = (
            np.float32(kernels.float_of_key(key)) for key in keys[0]
        )
        return divergences, float(median + np.float32(1.5) * (third_quartile - first_quartile))

    def block(
        self, tensor: TensorContext, inputs: list[Tensor], block: Block, statistics: Any
    ) -> Tensor:
        divergences, threshold = statistics
        is_important = self._importance(tensor, inputs, block, divergences) >= threshold
        other_model, base = self._pair(tensor, inputs)
        result: Tensor = base.add_(other_model.sub_(base).where(is_important, 0.0))
        return result

    def _importance(
        self, tensor: TensorContext, inputs: list[Tensor], block: Block, divergences: Any
    ) -> Any:
        row = self._row(tensor)
        return importance(*self._pair(tensor, inputs), divergences, row, block.start)

    def _pair(self, tensor: TensorContext, inputs: list[Tensor]) -> tuple[Any, Any]:
        return inputs[tensor.others[0]], tensor.base_of(inputs)

    def _row(self, tensor: TensorContext) -> int:
        return tensor.shape[-1] if tensor.shape else 1
