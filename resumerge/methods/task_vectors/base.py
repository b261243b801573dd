"""What methods share that add sparsified, combined task vectors (``x - base``) to the base model.

They differ in how a task vector is sparsified and in whether elements are kept only where their
sign agrees with the majority.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from resumerge import kernels
from resumerge.kernels.blocks import Block, Scan, scan_mapped
from resumerge.methods.base import Method, Parameter, TensorContext

MOST_KEPT = 1 << 28
"""Elements of the largest tensor whose masks are kept: 32 MiB for each of its inputs."""

SMALLEST_NORM = 1e-7
"""A sparsified task vector with a smaller L1 norm is not rescaled; nor is one with NaN or infinity,
which would spread over the tensor."""


def parameters(*, normalize: bool, rescale: bool | None) -> tuple[Parameter, ...]:
    """The family's parameters with one method's defaults; no rescale where nothing is dropped."""
    shared = [
        Parameter("weight", "factor on this model's task vector", per_model=True),
        Parameter("lambda", "factor on the combined task vector", 1.0),
        Parameter(
            "normalize", "divide by the sum of the weights that took part", normalize, "bool"
        ),
        Parameter("int8_mask", "accepted; masks never take more than a byte here", False, "bool"),
    ]
    if rescale is not None:
        shared += [
            Parameter("density", "share of elements kept", 1.0, per_model=True, low=0.0, high=1.0),
            Parameter("rescale", "make up for the dropped elements", rescale, "bool"),
        ]
    return tuple(shared)


@dataclass(frozen=True)
class Kept:
    """What the blocks need to know of the whole task vectors, by input.

    Args:
        selections: which elements are among the largest.
        factors: what makes up for the dropped elements.
        masks: those of every block, a bit an element, where they are kept.
    """

    selections: Mapping[int, Any]
    factors: Mapping[int, float]
    masks: Mapping[int, Sequence[np.ndarray]]


NOTHING = Kept({}, {}, {})


class TaskVectors(Method):
    """``base + lambda * sum(m_i * w_i * s_i(x_i - base)) / divisor``.

    s_i sparsifies, m_i is 1 where the element takes part (always, or by sign consensus), and the
    divisor is 1 or, with `normalize`, ``sum(m_i * w_i)`` where that is not nearly zero.

    With `rescale`, a sparsified task vector is multiplied so that its L1 norm is what it was
    before. That is mergekit's rule; the DARE paper divides by the density, which differs from it
    by the chance of the draw (and is the same in expectation).
    """

    base = "required"
    consensus: ClassVar[bool] = False
    sparse: ClassVar[bool] = True
    selection_passes: ClassVar[int] = 0
    """Times that `select` reads the task vectors."""
    dear_masks: ClassVar[bool] = False
    """Whether masks that are needed twice are kept in between rather than found again."""

    def select(
        self, tensor: TensorContext, densities: Mapping[int, float], scan: Scan[Any]
    ) -> dict[int, Any]:
        """Reduce over the task vectors what `mask` needs to know, by input.

        Args:
            densities: of the inputs that lose elements.
            scan: over dictionaries of their task vectors, by input.
        """
        return {}

    def mask(
        self, tensor: TensorContext, i: int, delta: Any, block: Block, selection: Any
    ) -> np.ndarray:
        """1 for the elements of input i's task vector that are kept, else 0: uint8."""
        raise NotImplementedError(f"{self.name} declares no mask")

    def rule(self, tensor: TensorContext, i: int, delta: Any, block: Block, selection: Any) -> Any:
        """The same as `kernels.combined` takes it: the mask, or what makes one superfluous."""
        return self.mask(tensor, i, delta, block, selection)

    def compiled(self, tensor: TensorContext) -> bool:
        return True

    def passes(self, tensor: TensorContext) -> int:
        if not self._densities(tensor):
            return 1
        return 1 + self.selection_passes + bool(tensor.params["rescale"])

    def statistics_bytes(self, tensor: TensorContext) -> int:
        return len(self._densities(tensor)) * tensor.numel // 8 if self._keeps_masks(tensor) else 0

    def statistics(self, tensor: TensorContext, scan: Scan[Any]) -> Kept:
        densities = self._densities(tensor)
        if not densities:
            return NOTHING
        selections = self.select(
            tensor, densities, scan_mapped(scan, lambda x, block: _task_vectors(tensor, x))
        )
        if not tensor.params["rescale"]:
            return Kept(selections, {}, {})
        keeps_masks = self._keeps_masks(tensor)

        def part(inputs: list[Any], block: Block) -> tuple[np.ndarray, list[np.ndarray]]:
            deltas = _task_vectors(tensor, inputs)
            masks = [self.mask(tensor, i, deltas[i], block, selections.get(i)) for i in densities]
            norms = [kernels.absolute_sums(deltas[i], mask) for i, mask in zip(densities, masks)]
            return np.array(norms), [np.packbits(mask) for mask in masks if keeps_masks]

        norms, masks = zip(*scan(part))
        factors = {
            i: float(before / after)
            for i, (before, after) in zip(densities, kernels.summed(norms))
            if after >= SMALLEST_NORM and math.isfinite(before)
        }
        return Kept(selections, factors, dict(zip(densities, zip(*masks))))

    def block(self, tensor: TensorContext, inputs: list[Any], block: Block, statistics: Any) -> Any:
        base = inputs[tensor.base]  # type: ignore[index]
        if not tensor.others:
            return base
        kept: Kept = statistics or NOTHING
        deltas = _task_vectors(tensor, inputs)
        weights = tensor.values("weight")
        densities = self._densities(tensor)
        normalize, scale = bool(tensor.params["normalize"]), float(tensor.params["lambda"])
        total = sum(weights)
        if normalize and not self.consensus and abs(total) >= kernels.SMALLEST_DIVISOR:
            scale /= total
        return kernels.combined(
            base,
            list(deltas.values()),
            [
                self._mask(tensor, i, delta, block, kept) if i in densities else None
                for i, delta in deltas.items()
            ],
            [w * kept.factors.get(i, 1.0) for i, w in zip(deltas, weights)],
            weights,
            self.consensus,
            normalize,
            scale,
        )

    def _densities(self, tensor: TensorContext) -> dict[int, float]:
        """The density of each input whose task vector is made sparse."""
        if not self.sparse:
            return {}
        densities = {i: float(tensor.per_model[i]["density"]) for i in tensor.others}
        return {i: density for i, density in densities.items() if density < 1.0}

    def _keeps_masks(self, tensor: TensorContext) -> bool:
        """Whether masks are needed twice, dear, and small enough to be kept in between."""
        return self.dear_masks and bool(tensor.params["rescale"]) and tensor.numel <= MOST_KEPT

    def _mask(self, tensor: TensorContext, i: int, delta: Any, block: Block, kept: Kept) -> Any:
        if i in kept.masks:
            return np.unpackbits(kept.masks[i][block.index], count=len(delta))
        return self.rule(tensor, i, delta, block, kept.selections.get(i))


def _task_vectors(tensor: TensorContext, inputs: list[Any]) -> dict[int, Any]:
    return dict(zip(tensor.others, kernels.subtract_base(inputs, tensor.base)))
