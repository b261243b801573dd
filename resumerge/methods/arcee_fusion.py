"""Arcee fusion: only the most important changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from resumerge.methods import kernels
from resumerge.methods.method import Block, Method, Paper, Scan, Work, viewed

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST_SHARE = 1e-8


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

    def reads(self, work: Work) -> int:
        return 3

    def row(self, work: Work) -> int | None:
        return work.shape[-1] if work.shape else 1

    def statistics(self, work: Work, scan: Scan[Any]) -> float:
        """The threshold of importance."""
        last = work.numel - 1
        ranks = [work.numel - share * last // 4 for share in (1, 2, 3)]
        keys = kernels.order_statistics(
            {0: ranks},
            viewed(scan, lambda x, block: {0: self._importance(work, x)}),
            kernels.ordered_bits,
        )
        low, median, high = (np.float32(kernels.from_ordered_bits(key)) for key in keys[0])
        return float(median + np.float32(1.5) * (high - low))

    def block(self, work: Work, inputs: list[Tensor], block: Block, statistics: Any) -> Tensor:
        base, other = inputs[work.base], inputs[work.others[0]]  # type: ignore[index]
        kept = self._importance(work, inputs) >= statistics
        return base.add_(kernels.keep_only(other.sub_(base), kept))

    def _importance(self, work: Work, inputs: list[Tensor]) -> Tensor:
        row = self.row(work) or 1
        base = inputs[work.base].view(-1, row)  # type: ignore[index]
        other = inputs[work.others[0]].view(-1, row)
        p = other.softmax(dim=1).add_(SMALLEST_SHARE)
        q = base.softmax(dim=1).add_(SMALLEST_SHARE)
        divergence = (p / q).log_().mul_(p).sum(dim=1, keepdim=True)
        return p.copy_(other).sub_(base).abs_().mul_(divergence).flatten()
