"""DELLA's masks from the rank of every element, which the program never computes."""

import numpy as np
from kernel_oracles.masks import draw_in_interval

from resumerge.kernels import BlockRun
from resumerge.kernels.masks.random import philox_key


def dense_mask(
    values: np.ndarray, density: float, reach: float, key: str, run: BlockRun
) -> np.ndarray:
    """Keep each element whose draw is below the probability of its rank in its row.

    Args:
        values: shape (n, row, stride), with its rows along the middle dimension.
        run: the run of one block.
    """
    row = values.shape[1]
    spread = abs(reach) if row > 1 else 0.0
    below, between, draws = draw_in_interval(
        density - spread, density + spread, philox_key(key), run.first, values.size
    )
    uniform = np.where(below, 0.0, 1.0)
    uniform[between] = draws
    magnitudes = rounded(np.abs(values.astype(np.float64)))
    smaller = (magnitudes[:, None, :, :] < magnitudes[:, :, None, :]).sum(2)
    equal = (magnitudes[:, None, :, :] == magnitudes[:, :, None, :]).sum(2)
    share = (smaller + (equal - 1) / 2.0) / (row - 1) if row > 1 else 0.5
    kept: np.ndarray = uniform.reshape(values.shape) < density - reach + 2.0 * reach * share
    return kept


def rounded(magnitudes: np.ndarray) -> np.ndarray:
    """Round down to 11 bits after the leading one, and to 0 below a 2^32nd of the row's largest."""
    mantissa, exponent = np.frexp(magnitudes)
    cut = np.ldexp(np.floor(mantissa * 4096.0) / 4096.0, exponent)
    largest = cut.max(axis=1, keepdims=True)
    cut[cut < largest * 2.0**-31.9] = 0.0
    assert not ((cut > 0) & (cut < largest * 2.0**-20)).any(), "no test comes near the limit"
    found: np.ndarray = cut
    return found
