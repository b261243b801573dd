"""The arithmetic that methods share: it streams tensors, and its results are the same to the bit.

A kernel reads the vectors (`resumerge.native.Vector`) of a block run and writes its result into an
output vector, rounded to that vector's dtype. The result does not depend on how a tensor is split
into block runs. `blocks.py` defines block runs and scans. `elementwise.py` has sums, means and
rounding by element, `task_vectors.py` combines task vectors, and `reductions.py` has dot products,
norms and counts by block or row. Each of their functions calls one function of the C extension,
and calls it again if float32 overflows (`overflow.py`). `masks/` makes masks, and `selection/`
finds order statistics. `linalg/` contains dense linear algebra. It uses torch, which is imported
only if a plan needs it, or NumPy's BLAS and LAPACK.

`quantised.py` decodes and encodes the numbers of quantised weights, and `draws.py` draws random
numbers. `measurements.py` measures how a merge changed each block, and `hashes.py` hashes blocks.
`huge_pages.py` allocates large arrays. Kernels import `resumerge.native` and, for the threads of
BLAS and for huge pages, `resumerge.host`.
"""

from resumerge.kernels.blocks import Block, BlockRun, MapFunction, Scan, scan_mapped, sum_blocks
from resumerge.kernels.elementwise import (
    clamp_to_distance,
    new_vector,
    round_to,
    trimmed_mean,
    variance,
    weighted_sum,
    weighted_sum_along,
)
from resumerge.kernels.masks.random import random_mask
from resumerge.kernels.masks.ranks import rank_mask
from resumerge.kernels.reductions import (
    Distance,
    column_gram,
    count_changes,
    count_conflicts,
    distance,
    gram,
    l1_norms,
    row_gram,
    sums_of_squares,
)
from resumerge.kernels.selection.find_largest import order_statistics, select, select_largest
from resumerge.kernels.selection.keys import Key, count_nonzero, float_of_key, keys_of
from resumerge.kernels.selection.limits import selection_bytes
from resumerge.kernels.selection.selection import Band, Selection
from resumerge.kernels.task_vectors import (
    SMALLEST_DIVISOR,
    add_majority_mean,
    add_mean_change,
    add_sum,
    add_task_vectors,
    add_voted_sum,
    subtract_base,
)

__all__ = [
    "SMALLEST_DIVISOR",
    "Band",
    "Block",
    "BlockRun",
    "Distance",
    "Key",
    "MapFunction",
    "Scan",
    "Selection",
    "add_majority_mean",
    "add_mean_change",
    "add_sum",
    "add_task_vectors",
    "add_voted_sum",
    "clamp_to_distance",
    "column_gram",
    "count_changes",
    "count_conflicts",
    "count_nonzero",
    "distance",
    "float_of_key",
    "gram",
    "keys_of",
    "l1_norms",
    "new_vector",
    "order_statistics",
    "random_mask",
    "rank_mask",
    "round_to",
    "row_gram",
    "scan_mapped",
    "select",
    "select_largest",
    "selection_bytes",
    "subtract_base",
    "sum_blocks",
    "sums_of_squares",
    "trimmed_mean",
    "variance",
    "weighted_sum",
    "weighted_sum_along",
]
