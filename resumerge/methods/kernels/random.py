"""Random masks from a counter: the same mask whatever was drawn before, anywhere.

Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a key and a
counter into random bits. The key is a hash of seed, unit and model; the block's number is the high
part of the counter. NumPy promises the stream of raw bits of its bit generators to stay the same.
"""

from __future__ import annotations

import numpy as np
import torch
import xxhash
from torch import Tensor

from resumerge.methods.method import Block

_KEEP, _TIE = 0, 1


def drop_at_random(values: Tensor, density: float, key: str, block: Block) -> Tensor:
    """Set elements to zero, in place, each kept with probability `density`.

    16 random bits decide an element; the one case in 65,536 where they equal the threshold is
    decided by 64 more, so that the probability is exact to 2**-53.

    Args:
        values: float32, a block of a tensor.
        density: in [0, 1].
        key: names the mask.
    """
    whole, fraction = divmod(density * 65536.0, 1.0)
    draw = _raw(key, block, _KEEP, -(-len(values) // 4)).view(np.uint16)[: len(values)]
    dropped = draw >= np.float64(whole) if whole > 65535 else draw >= np.uint16(whole)
    if fraction > 0.0:
        ties = np.flatnonzero(draw == np.uint16(whole))
        dropped[ties] = _raw(key, block, _TIE, len(ties)) >= np.uint64(fraction * 2.0**64)
    return values.masked_fill_(torch.from_numpy(dropped), 0.0)


def _raw(key: str, block: Block, stream: int, count: int) -> np.ndarray:
    counter = (block.index << 128) | (stream << 64)
    bits = np.random.Philox(key=xxhash.xxh3_128_intdigest(key.encode()), counter=counter)
    return bits.random_raw(count)
