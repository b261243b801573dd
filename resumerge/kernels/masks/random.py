"""Random masks from a counter-based generator: a mask does not depend on earlier draws.

Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a key and a
counter into random bits. The bits are the same as those of NumPy's generator of this name. The key
is a hash of seed, unit and model. The high part of the counter is the index of the block.
"""

from __future__ import annotations

import numpy as np
import xxhash

from resumerge.kernels.blocks import BlockRun
from resumerge.native import _kernels


def random_mask(density: float, key: str, run: BlockRun) -> np.ndarray:
    """Return a mask of a run in which each element is kept with probability `density`.

    8 random bits decide whether an element is kept. In one case of 256, these bits equal the
    threshold, and 64 more bits decide. A mask therefore uses about one random byte for each
    element, and the probability is exact to 2**-53.

    Args:
        density: the probability, in [0, 1].
        key: text that identifies the mask; hashed to the generator's key.
        run: the block run; the index of each block is a part of its counter.

    Returns:
        uint8, 1 where an element is kept, else 0.
    """
    if density >= 1.0:
        return np.ones(run.length, np.uint8)
    threshold, fraction = divmod(density * 256.0, 1.0)
    mask = np.empty(run.length, np.uint8)
    _kernels.random_mask(
        philox_key(key), run.first, run.size, int(threshold), int(fraction * 2.0**64), mask
    )
    return mask


def philox_key(key: str) -> bytes:
    """Return the 16 bytes of the generator's key, a hash of the text."""
    return xxhash.xxh3_128_intdigest(key.encode()).to_bytes(16, "little")
