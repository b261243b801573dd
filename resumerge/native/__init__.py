"""The compiled kernels: a C extension for every Python from 3.11 on (the limited API).

`module.c` checks what it is given, `arguments.h` and `vector_type.h` say how; the other headers are
the kernels, compiled once for each instruction set. `_kernels.pyi` has the types of its functions,
`resumerge.kernels` says what each computes. This package imports nothing else of resumerge.
"""

import os

import numpy as np

from resumerge.native._kernels import (
    BF16,
    F8_E4M3,
    F8_E5M2,
    F16,
    F32,
    F64,
    Vector,
    instruction_sets,
    read_ranges,
    use,
)

__all__ = [
    "BF16",
    "CODES",
    "F16",
    "F32",
    "F64",
    "INSTRUCTION_SET",
    "KINDS",
    "MaskOrThreshold",
    "Vector",
    "instruction_sets",
    "read_ranges",
    "use",
]

INSTRUCTION_SET = "RESUMERGE_KERNELS"
"""The environment variable of the kernels: ``baseline``, ``avx2`` or ``avx512``.

Without it, the best one that this processor has is used.
"""

CODES = {
    "float32": F32,
    "bfloat16": BF16,
    "float16": F16,
    "float64": F64,
    "float8_e4m3fn": F8_E4M3,
    "float8_e5m2": F8_E5M2,
}
"""The element types that kernels read and write, by torch's names."""

KINDS: dict[int, type[np.generic]] = {
    F32: np.float32,
    BF16: np.uint16,
    F16: np.uint16,
    F64: np.float64,
    F8_E4M3: np.uint8,
    F8_E5M2: np.uint8,
}
"""The NumPy types of arrays of each element type.

Elements of 8 and 16 bits are unsigned integers with these bits.
"""

MaskOrThreshold = np.ndarray | tuple[int, int] | None
"""The elements kept of a vector.

This is a mask (uint8 of 0 and 1); a threshold of the magnitudes' keys, with the number of elements
equal to it that are kept; or None for all.
"""

if os.environ.get(INSTRUCTION_SET) in instruction_sets():
    use(os.environ[INSTRUCTION_SET])
