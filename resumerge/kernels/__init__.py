"""Arithmetic that the methods share: streaming, and deterministic to the bit.

A kernel takes flat vectors of one block: torch float32 tensors, which it may overwrite, or
`resumerge.native.Vector`, which the compiled kernels compute on. Both give the same bits.
`blocks.py` has the types of blocks and scans, `masks/` makes masks, `selection/` finds order
statistics. Kernels import `resumerge.native` and nothing else of the package; torch is imported
inside functions, since it takes a second and 200 MB.
"""

from resumerge.kernels.blocks import Block, MapFunction, Scan, scan_mapped
from resumerge.kernels.changes import add_mean_change, count_changes
from resumerge.kernels.clamp import clamp_to_distance
from resumerge.kernels.consensus import SMALLEST_DIVISOR, sign_consensus_sum
from resumerge.kernels.differences import count_nonzero, subtract_base, variance
from resumerge.kernels.divergence import concatenate, importance, row_divergences
from resumerge.kernels.energies import add_majority_mean, sums_of_squares
from resumerge.kernels.masks.apply import apply_mask
from resumerge.kernels.masks.random import draw_in_interval, random_mask
from resumerge.kernels.masks.ranks import rank_mask
from resumerge.kernels.matrices import (
    column_gram,
    row_gram,
    weighted_sum_by_column,
    weighted_sum_by_row,
)
from resumerge.kernels.reductions import gram, l1_norm, l1_norms, sum_blocks
from resumerge.kernels.selection.chosen import Band, Selection
from resumerge.kernels.selection.keys import (
    as_native,
    float_of_ordered_bits,
    magnitude_bits,
    ordered_bits,
)
from resumerge.kernels.selection.limits import selection_bytes
from resumerge.kernels.selection.selection import order_statistics, select, select_largest
from resumerge.kernels.sorting import trimmed_mean
from resumerge.kernels.spectral import isotropic
from resumerge.kernels.sums import add_scaled, add_scaled_sum, sum_vectors, weighted_sum
from resumerge.kernels.task_vectors import add_task_vectors
from resumerge.kernels.votes import add_voted_sum

__all__ = [
    "SMALLEST_DIVISOR",
    "Band",
    "Block",
    "MapFunction",
    "Scan",
    "Selection",
    "add_majority_mean",
    "add_mean_change",
    "add_scaled",
    "add_scaled_sum",
    "add_task_vectors",
    "add_voted_sum",
    "apply_mask",
    "as_native",
    "clamp_to_distance",
    "column_gram",
    "concatenate",
    "count_changes",
    "count_nonzero",
    "draw_in_interval",
    "float_of_ordered_bits",
    "gram",
    "importance",
    "isotropic",
    "l1_norm",
    "l1_norms",
    "magnitude_bits",
    "order_statistics",
    "ordered_bits",
    "random_mask",
    "rank_mask",
    "row_divergences",
    "row_gram",
    "scan_mapped",
    "select",
    "select_largest",
    "selection_bytes",
    "sign_consensus_sum",
    "subtract_base",
    "sum_blocks",
    "sum_vectors",
    "sums_of_squares",
    "trimmed_mean",
    "variance",
    "weighted_sum",
    "weighted_sum_by_column",
    "weighted_sum_by_row",
]
