"""The base class of methods that add sparse, combined task vectors (``x - base``) to the base.

Its subclasses differ in two ways: how they make a task vector sparse, and whether they keep only
the elements whose sign agrees with the majority.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from resumerge import kernels
from resumerge.kernels.blocks import BlockRun, Scan, scan_mapped
from resumerge.methods.base import KernelMethod, Parameter, TensorContext
from resumerge.native import Vector

MOST_MASKED = 1 << 28
"""The size of the largest tensor whose masks stay in memory, in elements: 32 MiB for each input."""

SMALLEST_NORM = 1e-7
"""The smallest L1 norm of a sparsified task vector that is rescaled.

A vector that contains NaN or infinity is not rescaled, because the factor would spread them over
the whole tensor.
"""


def parameters(*, normalize: bool, rescale: bool | None) -> tuple[Parameter, ...]:
    """Return the family's parameters with a method's defaults.

    Args:
        normalize: the value of `normalize` where a recipe does not set it.
        rescale: the default of `rescale`; None to leave out `density` and `rescale`.
    """
    declared_parameters = [
        Parameter("weight", "factor for this model's task vector", per_model=True, example=1.0),
        Parameter("lambda", "factor for the combined task vector", 1.0),
        Parameter(
            "normalize", "divide by the sum of the weights used for the element", normalize, "bool"
        ),
        Parameter("int8_mask", "accepted, but has no effect", False, "bool"),
    ]
    if rescale is not None:
        declared_parameters += [
            Parameter(
                "density",
                "share of elements kept",
                1.0,
                per_model=True,
                low=0.0,
                high=1.0,
                saturates=True,
                example=0.5,
            ),
            Parameter(
                "rescale", "scale up the rest, to make up for dropped elements", rescale, "bool"
            ),
        ]
    return tuple(declared_parameters)


@dataclass(frozen=True)
class TaskVectorStatistics:
    """The facts about whole task vectors that the blocks need, by input.

    Args:
        selections: the result of `select` for each input; `mask` needs it.
        factors: the L1 norm before the mask, divided by the L1 norm after it.
        masks: the masks of the blocks, one bit for each element; empty without `reuse_masks`.
    """

    selections: Mapping[int, Any]
    factors: Mapping[int, float]
    masks: Mapping[int, Sequence[np.ndarray]]


NO_STATISTICS = TaskVectorStatistics({}, {}, {})


class TaskVectors(KernelMethod):
    """``base + lambda * sum(m_i * w_i * s_i(x_i - base)) / divisor``.

    s_i drops elements. With `elects_signs`, m_i is 1 where the element's sign agrees with the sign
    consensus, else 0. Without `elects_signs`, m_i is always 1. The divisor is 1 or, with
    `normalize`, ``sum(m_i * w_i)`` if this sum is not nearly zero.

    With `rescale`, a sparsified task vector is multiplied by the factor that restores its L1 norm.
    mergekit has the same rule. The DARE paper divides by the density; the two results differ
    because a random draw does not keep exactly that share of the norm.
    """

    base = "required"
    combines_changes = True
    elects_signs: ClassVar[bool] = False
    """Whether an element takes part only if it has the sign of the sum: TIES' sign consensus."""
    sparse: ClassVar[bool] = True
    selection_passes: ClassVar[int] = 0
    """The number of passes of `select` over the task vectors; the first one reads only samples."""
    reuse_masks: ClassVar[bool] = False
    """Whether masks that are needed twice stay in memory; else they are computed twice."""
    not_in_statistics = frozenset({"weight", "lambda", "normalize", "int8_mask"})

    def select(
        self, tensor: TensorContext, densities: Mapping[int, float], scan: Scan[Any]
    ) -> dict[int, Any]:
        """Return the facts about the whole task vectors that `mask` needs, by input.

        Args:
            tensor: the tensor whose task vectors are made sparse, with the parameters of each
                input.
            densities: the density of each input whose task vector is made sparse.
            scan: a scan whose functions receive the task vectors as a dictionary by input.
        """
        return {}

    def mask(
        self, tensor: TensorContext, i: int, delta: Vector, run: BlockRun, selection: Any
    ) -> np.ndarray:
        """Return the mask of input i's task vector: uint8, 1 for kept elements, else 0."""
        raise NotImplementedError(f"{self.name} declares no mask")

    def mask_or_threshold(
        self, tensor: TensorContext, i: int, delta: Vector, run: BlockRun, selection: Any
    ) -> Any:
        """Return the mask, or a threshold that `kernels.add_task_vectors` accepts in its place."""
        return self.mask(tensor, i, delta, run, selection)

    def passes(self, tensor: TensorContext) -> int:
        if not self._densities(tensor):
            return 1
        return 1 + self.selection_passes + bool(tensor.params["rescale"])

    def samples(self, tensor: TensorContext) -> int:
        return int(self.selection_passes > 0 and bool(self._densities(tensor)))

    def statistics_bytes(self, tensor: TensorContext) -> int:
        return len(self._densities(tensor)) * tensor.numel // 8 if self._stores_masks(tensor) else 0

    def statistics(self, tensor: TensorContext, scan: Scan[Any]) -> TaskVectorStatistics:
        densities = self._densities(tensor)
        if not densities:
            return NO_STATISTICS
        selections = self.select(
            tensor, densities, scan_mapped(scan, lambda x, run: _task_vectors(tensor, x))
        )
        if not tensor.params["rescale"]:
            return TaskVectorStatistics(selections, {}, {})
        stores_masks = self._stores_masks(tensor)

        def masked_norms(inputs: list[Vector], run: BlockRun) -> tuple[np.ndarray, list[Any]]:
            deltas = _task_vectors(tensor, inputs)
            masks = [self.mask(tensor, i, deltas[i], run, selections.get(i)) for i in densities]
            norms = [kernels.l1_norms(deltas[i], mask, run) for i, mask in zip(densities, masks)]
            stored_masks = masks if stores_masks else []
            return np.stack(norms, axis=1), [packed_mask(mask, run) for mask in stored_masks]

        norms, masks = zip(*scan(masked_norms))
        factors = {
            i: float(norm_before / norm_after)
            for i, (norm_before, norm_after) in zip(densities, kernels.sum_blocks(norms))
            if norm_after >= SMALLEST_NORM and math.isfinite(norm_before)
        }
        stored_masks = {
            i: list(chain.from_iterable(runs)) for i, runs in zip(densities, zip(*masks))
        }
        return TaskVectorStatistics(selections, factors, stored_masks)

    def compute(
        self,
        tensor: TensorContext,
        inputs: list[Vector],
        run: BlockRun,
        statistics: Any,
        out: Vector,
    ) -> None:
        base = tensor.base_of(inputs)
        if not tensor.others:
            kernels.round_to(base, out)
            return
        found_statistics: TaskVectorStatistics = statistics or NO_STATISTICS
        deltas = _task_vectors(tensor, inputs)
        weights = tensor.values("weight")
        densities = self._densities(tensor)
        normalize, scale = bool(tensor.params["normalize"]), float(tensor.params["lambda"])
        total = sum(weights)
        if normalize and not self.elects_signs and abs(total) >= kernels.SMALLEST_DIVISOR:
            scale /= total
        kernels.add_task_vectors(
            base,
            list(deltas.values()),
            masks=[
                self._mask(tensor, i, delta, run, found_statistics) if i in densities else None
                for i, delta in deltas.items()
            ],
            factors=[
                weight * found_statistics.factors.get(i, 1.0) for i, weight in zip(deltas, weights)
            ],
            divisor_weights=weights,
            elect_signs=self.elects_signs,
            normalize=normalize,
            scale=scale,
            out=out,
        )

    def _densities(self, tensor: TensorContext) -> dict[int, float]:
        """Return the density of each input whose task vector is made sparse."""
        if not self.sparse:
            return {}
        densities = {i: float(tensor.per_model[i]["density"]) for i in tensor.others}
        return {i: density for i, density in densities.items() if density < 1.0}

    def _stores_masks(self, tensor: TensorContext) -> bool:
        """Return whether masks are needed twice, expensive, and small enough to stay in memory."""
        return self.reuse_masks and bool(tensor.params["rescale"]) and tensor.numel <= MOST_MASKED

    def _mask(
        self,
        tensor: TensorContext,
        i: int,
        delta: Vector,
        run: BlockRun,
        facts: TaskVectorStatistics,
    ) -> Any:
        if i in facts.masks:
            return unpacked_mask(facts.masks[i][run.first : run.first + len(run)], run)
        return self.mask_or_threshold(tensor, i, delta, run, facts.selections.get(i))


def _task_vectors(tensor: TensorContext, inputs: list[Vector]) -> dict[int, Vector]:
    return dict(zip(tensor.others, kernels.subtract_base(inputs, tensor.base)))


def packed_mask(mask: np.ndarray, run: BlockRun) -> list[np.ndarray]:
    """Return the bits of a run's mask, with one array for each block, which starts at a byte."""
    if run.size % 8:
        return [np.packbits(mask[block_slice]) for block_slice in run.blocks()]
    bits = np.packbits(mask)
    return [
        bits[block_slice.start // 8 : -(-block_slice.stop // 8)] for block_slice in run.blocks()
    ]


def unpacked_mask(packed: Sequence[np.ndarray], run: BlockRun) -> np.ndarray:
    """Return the mask of a run (uint8 of 0 and 1) from the bits of its blocks."""
    if run.size % 8 == 0:
        return np.unpackbits(np.concatenate(packed), count=run.length)
    lengths = [block_slice.stop - block_slice.start for block_slice in run.blocks()]
    return np.concatenate(
        [np.unpackbits(bits, count=length) for bits, length in zip(packed, lengths)]
    )
