"""Arcee fusion: only the most important changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from resumerge import kernels
from resumerge.methods.base import Block, Method, Paper, Scan, TensorContext, viewed


class ArceeFusion(Method):
    """``base + d`` where an element of ``d = x - base`` is important, else the base.

    The importance of an element is ``|d| * KL(softmax(x) || softmax(base))``, the softmax and the
    divergence being those of its row (vector along the last dimension), in float32. It has to reach
    ``median + 1.5 * (upper quartile - lower quartile)`` of the whole tensor's importances. The
    quartiles are exact and lie on elements: of n, the ``floor(q * (n-1))``-th from below.
    """

    name = "arcee_fusion"
    summary = "the other model's elements where they differ most, else the base's"
    papers = (
        Paper(
            "Arcee's MergeKit: a toolkit for merging large language models",
            "https://arxiv.org/abs/2403.13257",
        ),
    )
    base = "required"
    fewest = 2
    most = 2

    def held_bytes(self, work: TensorContext) -> int:
        rows = work.numel // max(1, self._row(work))
        return 4 * rows + kernels.selection_bytes(work.numel, [[0.25, 0.5, 0.75]])

    def passes(self, work: TensorContext) -> int:
        return 4

    def row(self, work: TensorContext) -> int | None:
        return self._row(work)

    def statistics(self, work: TensorContext, scan: Scan[Any]) -> tuple[Any, float]:
        """The divergence of each row, and the threshold of importance."""
        row = self._row(work)
        divergences = kernels.joined(
            scan(lambda x, block: kernels.row_divergences(*self._pair(work, x), row)),
            work.numel // row,
        )
        last = work.numel - 1
        ranks = [work.numel - share * last // 4 for share in (1, 2, 3)]

        def importance(x: list[Any], block: Block) -> dict[int, Any]:
            return {0: kernels.quickest(self._importance(work, x, block, divergences))}

        keys = kernels.order_statistics(
            {0: ranks}, work.numel, viewed(scan, importance), kernels.ordered_bits
        )
        low, median, high = (np.float32(kernels.from_ordered_bits(key)) for key in keys[0])
        return divergences, float(median + np.float32(1.5) * (high - low))

    def block(self, work: TensorContext, inputs: list[Any], block: Block, statistics: Any) -> Any:
        divergences, threshold = statistics
        kept = self._importance(work, inputs, block, divergences) >= threshold
        other, base = self._pair(work, inputs)
        return kernels.added(base, kernels.keep_only(other.sub_(base), kept))

    def _importance(
        self, work: TensorContext, inputs: list[Any], block: Block, divergences: Any
    ) -> Any:
        row = self._row(work)
        return kernels.importance(*self._pair(work, inputs), divergences, row, block.start)

    def _pair(self, work: TensorContext, inputs: list[Any]) -> tuple[Any, Any]:
        return inputs[work.others[0]], inputs[work.base]  # type: ignore[index]

    def _row(self, work: TensorContext) -> int:
        return work.shape[-1] if work.shape else 1
