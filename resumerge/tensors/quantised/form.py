"""The way in which a quantisation scheme writes the numbers of a block, and its scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from resumerge.kernels import round_to
from resumerge.kernels.quantised import Code
from resumerge.native import Vector
from resumerge.tensors.dtypes import BITS
from resumerge.tensors.evaluation import as_vector
from resumerge.tensors.quantised.codes import E8M0

_LIMITS = {
    "F32": (2.0**-126, float(np.finfo(np.float32).max)),
    "BF16": (2.0**-126, (2.0 - 2.0**-7) * 2.0**127),
    "F16": (2.0**-14, 65504.0),
}
"""The smallest normal number and the largest number of each dtype of scales."""

_ONE = np.float32(1)
_E4M3 = "F8_E4M3"

_EIGHTH = 0x20
"""The code of 0.125 in E4M3: the scale of a block of zeros, as in compressed-tensors."""


@dataclass(frozen=True)
class Form:
    """The way in which a quantisation scheme writes the numbers of a block.

    Args:
        name: the scheme's name in the ledger.
        code: the kind of the codes.
        largest: the number to which the largest magnitude of a block is scaled.
        scales: the dtype of the scales, by safetensors' name; U8 for powers of two (E8M0).
        whole: the number to which the largest magnitude of a weight is scaled before the blocks'
            scales are computed; 0 for no factor. The factor is stored after the scales, in float32.
    """

    name: str
    code: Code
    largest: float
    scales: str
    whole: float = 0.0

    def factor(self, largest: float) -> np.float32:
        """Return the factor of a weight; 1 if the form has no factor, or if it is not finite.

        Source: compressed-tensors, quantization/utils/helpers.py, `generate_gparam`.

        Args:
            largest: the largest finite magnitude of the weight.
        """
        least = np.finfo(np.float32).tiny
        with np.errstate(over="ignore"):
            # compressed-tensors uses torch, which divides a number by a tensor in this way.
            factor = _ONE / np.maximum(np.float32(largest), least) * np.float32(self.whole)
        return factor if self.whole and np.isfinite(factor) else _ONE

    def scaled(
        self, maxima: np.ndarray, factor: np.float32 = _ONE
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the scales of blocks, as stored bytes and as numbers.

        A scale is ``maximum / largest``, rounded to nearest. It is NaN if a number of the block is
        not finite. The scale of a block of zeros is not 0, so that nothing is divided by 0.

        Args:
            maxima: the largest magnitude of each block, float32.
            factor: the factor of the weight, by which stored scales in float8 are multiplied.

        Returns:
            The bytes of all scales (uint8), and the scales (float32, in the shape of `maxima`).
        """
        if self.scales == "U8":
            return self._powers_of_two(maxima)
        with np.errstate(all="ignore"):
            scales = maxima / np.float32(self.largest)
            scales = np.where(np.isfinite(maxima), scales, np.float32(np.nan))
            return self._float8s(scales, factor) if self.scales == _E4M3 else self._floats(scales)

    def _powers_of_two(self, maxima: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the scales of `scaled` as powers of two (E8M0).

        The maximum is rounded to one bit of its fraction, and its power of two is divided by that
        of `largest`, as in compressed-tensors (quantization/utils/mxfp_utils.py).
        """
        offset = int(np.floor(np.log2(self.largest)))
        exponents = ((maxima.view(np.int32) + (1 << 21)) >> 23) - offset
        scale_bytes = np.where(np.isfinite(maxima), exponents.clip(0, 254), 255).astype(np.uint8)
        return scale_bytes, E8M0.table[scale_bytes, 0]

    def _float8s(self, scales: np.ndarray, factor: np.float32) -> tuple[np.ndarray, np.ndarray]:
        """Return the scales of `scaled` in E4M3; 0.125 is stored for a scale that would be 0."""
        scales = factor * scales
        scale_bytes = np.empty(scales.size, np.uint8)
        scale_vector = as_vector(scale_bytes, self.scales)
        round_to(Vector(scales.reshape(-1)), scale_vector)
        scale_bytes[scale_bytes == 0] = _EIGHTH
        round_to(scale_vector, Vector(scales.reshape(-1)))
        return scale_bytes, scales / factor

    def _floats(self, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the scales of `scaled` in a float type: at least its smallest normal number."""
        smallest, largest = _LIMITS[self.scales]
        scales = np.ascontiguousarray(scales.clip(np.float32(smallest), np.float32(largest)))
        scale_bytes = np.empty(scales.size * BITS[self.scales] // 8, np.uint8)
        scale_vector = as_vector(scale_bytes, self.scales)
        round_to(Vector(scales.reshape(-1)), scale_vector)
        round_to(scale_vector, Vector(scales.reshape(-1)))
        return scale_bytes, scales
