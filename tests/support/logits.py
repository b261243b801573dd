"""The comparison of what torch computes with the same weights, loaded twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def assert_same(found: Tensor, expected: Tensor) -> None:
    """Of the same weights: the order of a sum in torch may follow from where in memory they lie."""
    import torch

    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
