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

from resumerge.methods.kernels.masks import keep_only
from resumerge.methods.method import Block

_FIRST_BITS, _MORE_BITS = 0, 1


def drop_at_random(values: Tensor, density: float, key: str, block: Block) -> Tensor:
    """Set elements to zero, in place, each kept with probability `density`.

    8 random bits decide an element; the one case in 256 where they equal the threshold is decided
    by 64 more. So a mask costs a byte an element, and the probability is exact to 2**-53.

    Args:
        values: float32, a block of a tensor.
        density: in [0, 1].
        key: names the mask.
    """
    if density >= 1.0:
        return values
    whole, fraction = divmod(density * 256.0, 1.0)
    words = _words(key, block, _FIRST_BITS, -(-len(values) // 8))
    draw = words.astype("<u8", copy=False).view(np.uint8)[: len(values)]
    kept = draw < np.uint8(whole)
    if fraction > 0.0:
        ties = np.flatnonzero(draw == np.uint8(whole))
        kept[ties] = _words(key, block, _MORE_BITS, len(ties)) < np.uint64(fraction * 2.0**64)
    return keep_only(values, torch.from_numpy(kept))


def _words(key: str, block: Block, stream: int, count: int) -> np.ndarray:
    counter = (block.index << 128) | (stream << 64)
    bits = np.random.Philox(key=xxhash.xxh3_128_intdigest(key.encode()), counter=counter)
    return bits.random_raw(count)
