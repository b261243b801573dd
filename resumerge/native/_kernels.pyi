"""Types of the compiled kernels.

Every function raises ValueError or TypeError for arguments that do not go together, before it
reads or writes anything, and MemoryError where there is no memory for its scratch. Arrays are
C-contiguous buffers with elements of the type that is said. `block` is the number of elements of a
block: where a function returns something for each block, the last block may be shorter. What
returns a bool says whether a float32 overflowed on the way, as far as the processor knows.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from resumerge.native import MaskOrThreshold

F32: int
BF16: int
F16: int
F64: int
F8_E4M3: int
F8_E5M2: int
CHUNK: int
MEASURED_SUMS: int
MEASURED_MODEL_SUMS: int

class Vector:
    """A flat vector as it is stored, or its difference from a base.

    Args:
        data: float32 or float64, uint16 with the bits of bfloat16 or float16, or uint8 with the
            bits of a float of 8 bits.
        dtype: F32, BF16, F16, F64, F8_E4M3 or F8_E5M2.
        base: a vector of the same length, without a base, which is subtracted.
        exact: float32: where results that are written to the vector are kept before they are
            rounded, those of one block after those of the other; None to keep nothing.
        block: the elements of a block.
        measured: the first elements of each block, which are kept.
    """

    def __new__(
        cls,
        data: Any,
        dtype: int = ...,
        base: Vector | None = None,
        exact: Any = None,
        block: int | None = None,
        measured: int | None = None,
    ) -> Vector: ...
    def __len__(self) -> int: ...
    def less(self, base: Vector) -> Vector: ...
    @property
    def data(self) -> Any: ...
    @property
    def dtype(self) -> int: ...
    @property
    def base(self) -> Vector | None: ...
    @property
    def exact(self) -> Any: ...
    @property
    def block(self) -> int: ...
    @property
    def measured(self) -> int: ...

def instruction_sets() -> tuple[str, ...]: ...
def use(name: str, /) -> None: ...
def hash_blocks(data: Any, block: int, /) -> bytes: ...
def read_ranges(ranges: Iterable[tuple[int, int, Any, int]], /) -> tuple[bytes, ...] | None: ...
def measure(
    reference: Vector,
    vectors: Iterable[Vector],
    out: Vector,
    sums: np.ndarray,
    written: np.ndarray | None,
    /,
) -> None: ...
def round_to(vector: Vector, out: Vector, /) -> None: ...
def weighted_sum(terms: Iterable[Vector], weights: Iterable[float], out: Vector, /) -> bool: ...
def weighted_sum_along(
    terms: Iterable[Vector], weights: np.ndarray, row: int, by_column: bool, out: Vector, /
) -> bool: ...
def clamp_to_distance(vector: Vector, center: Vector, distance: float, out: Vector, /) -> None: ...
def add_mean_change(
    base: Vector,
    vectors: Iterable[Vector],
    factors: Iterable[float],
    epsilon: float,
    out: Vector,
    /,
) -> bool: ...
def count_changes(
    vectors: Iterable[Vector], epsilon: float, block: int, out: np.ndarray, /
) -> None: ...
def count_conflicts(vectors: Iterable[Vector], out: np.ndarray, /) -> None: ...
def distance(first: Vector, second: Vector, out: np.ndarray, /) -> None: ...
def variance(vectors: Iterable[Vector], out: Vector, /) -> None: ...
def sums_of_squares(
    vector: Vector, mask: np.ndarray | None, block: int, out: np.ndarray, /
) -> bool: ...
def l1_norms(vector: Vector, mask: np.ndarray | None, block: int, out: np.ndarray, /) -> bool: ...
def add_majority_mean(
    base: Vector,
    vectors: Iterable[Vector],
    mask: np.ndarray | None,
    weights: Iterable[float],
    out: Vector,
    /,
) -> bool: ...
def trimmed_mean(vectors: Iterable[Vector], cut: int, out: Vector, /) -> bool: ...
def random_mask(
    key: bytes, first: int, block: int, whole: int, fraction: int, out: np.ndarray, /
) -> None: ...
def rank_mask(
    vector: Vector,
    key: bytes,
    first: int,
    block: int,
    row: int,
    stride: int,
    density: float,
    reach: float,
    out: np.ndarray,
    /,
) -> None: ...
def gram(vectors: Iterable[Vector], row: int, out: np.ndarray, /) -> bool: ...
def column_gram(vectors: Iterable[Vector], row: int, block: int, out: np.ndarray, /) -> bool: ...
def keys(vector: Vector, ordered: bool, out: np.ndarray, /) -> None: ...
def keys_in_bracket(
    vector: Vector, ordered: bool, low: int, high: int, block: int, /
) -> tuple[int, bytes, bytes, list[int]]: ...
def key_of_rank(keys: np.ndarray, counts: np.ndarray, rank: int, /) -> tuple[int, int] | None: ...
def equal_counts(vector: Vector, ordered: bool, key: int, block: int, /) -> list[int]: ...
def mask_above(
    vector: Vector, ordered: bool, threshold: int, quota: int, out: np.ndarray, /
) -> None: ...
def add_task_vectors(
    base: Vector,
    vectors: Iterable[Vector],
    masks: Iterable[MaskOrThreshold],
    factors: Iterable[float],
    divisor_weights: Iterable[float],
    elect_signs: bool,
    normalize: bool,
    scale: float,
    out: Vector,
    /,
) -> bool: ...
def add_voted_sum(
    base: Vector,
    vectors: Iterable[Vector],
    weights: Iterable[float],
    thresholds: Iterable[float],
    least: int,
    scale: float,
    out: Vector,
    /,
) -> bool: ...
def decode(codes: np.ndarray, table: np.ndarray, out: np.ndarray, /) -> None: ...
def apply_grid(
    matrix: np.ndarray, columns: int, grid: np.ndarray, block: int, subtracts: bool, /
) -> None: ...
def block_maxima(matrix: np.ndarray, columns: int, block: int, out: np.ndarray, /) -> None: ...
def quantise(
    matrix: np.ndarray,
    columns: int,
    grid: np.ndarray,
    block: int,
    kind: int,
    out: np.ndarray,
    /,
) -> None: ...
