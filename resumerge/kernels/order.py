"""Order statistics of each element over the models."""

from __future__ import annotations

from collections.abc import Sequence

from resumerge.native import Vector, _kernels


def trimmed_mean(vectors: Sequence[Vector], cut: int, out: Vector) -> None:
    """The mean of each element's values without the `cut` lowest and the `cut` highest.

    NaN where one vector has NaN, and never -0.
    """
    _kernels.trimmed_mean(vectors, cut, out)
