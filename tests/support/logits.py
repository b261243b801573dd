"""The comparison of torch's results for the same weights, loaded twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def assert_same(found: Tensor, expected: Tensor) -> None:
    """Compare results of equal weights: torch's order of a sum may depend on their addresses."""
    import torch

    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
