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
    draw = _bytes(key, block, len(values))
    kept = draw < np.uint8(whole)
    if fraction > 0.0:
        ties = np.flatnonzero(draw == np.uint8(whole))
        kept[ties] = _words(key, block, _MORE_BITS, len(ties)) < np.uint64(fraction * 2.0**64)
    return keep_only(values, torch.from_numpy(kept))


def drop_by_rank(
    values: Tensor, ranks: np.ndarray, probabilities: np.ndarray, key: str, block: Block
) -> Tensor:
    """Set elements to zero, in place, each kept with the probability of its rank.

    Args:
        values: float32, a block of a tensor.
        ranks: whole numbers, one for each element.
        probabilities: float64, of each rank; 1 counts as the largest number below it.
        key: names the mask.
    """
    wholes, fractions = np.divmod(np.clip(probabilities, 0.0, 1.0 - 2.0**-53) * 256.0, 1.0)
    draw = _bytes(key, block, len(values))
    threshold = wholes.astype(np.uint8)[ranks]
    kept = draw < threshold
    ties = np.flatnonzero(draw == threshold)
    rest = (fractions * 2.0**64).astype(np.uint64)[ranks[ties]]
    kept[ties] = _words(key, block, _MORE_BITS, len(ties)) < rest
    return keep_only(values, torch.from_numpy(kept))


def _bytes(key: str, block: Block, count: int) -> np.ndarray:
    """A random byte for each element."""
    words = _words(key, block, _FIRST_BITS, -(-count // 8))
    return words.astype("<u8", copy=False).view(np.uint8)[:count]


def _words(key: str, block: Block, stream: int, count: int) -> np.ndarray:
    counter = (block.index << 128) | (stream << 64)
    bits = np.random.Philox(key=xxhash.xxh3_128_intdigest(key.encode()), counter=counter)
    return bits.random_raw(count)
