"""Random masks from a counter-based generator: a mask does not depend on what was drawn before.

Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a key and a
counter into random bits. The key is a hash of seed, unit and model; the block's number is the high
part of the counter. NumPy guarantees that the raw bits of its generators do not change.
"""

from __future__ import annotations

import numpy as np
import xxhash

from resumerge.kernels.blocks import Block
from resumerge.native import calls, instruction_set

_FIRST_BITS, _MORE_BITS = 0, 1


def random_mask(count: int, density: float, key: str, block: Block) -> np.ndarray:
    """A mask of a block in which each element is kept with probability `density`.

    8 random bits decide an element, except for one case in 256, where they equal the threshold and
    64 more bits decide. So a mask costs about a random byte for each element, and the
    probability is exact to 2**-53.

    Args:
        count: elements of the block.
        density: in [0, 1].
        key: text that identifies the mask; hashed to the generator's key.

    Returns:
        uint8, 1 where an element is kept, else 0.
    """
    if density >= 1.0:
        return np.ones(count, np.uint8)
    whole, fraction = divmod(density * 256.0, 1.0)
    if instruction_set() is not None:
        return calls.random_mask(
            philox_key(key), block.index, int(whole), int(fraction * 2.0**64), count
        )
    draw = _bytes(key, block, count)
    kept = draw < np.uint8(whole)
    if fraction > 0.0:
        ties = np.flatnonzero(draw == np.uint8(whole))
        kept[ties] = _words(key, block, _MORE_BITS, len(ties)) < np.uint64(fraction * 2.0**64)
    return kept.view(np.uint8)


def draw_in_interval(
    low: float, high: float, key: str, block: Block, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Uniform draws of 24 bits in [0, 1), in full only where they may lie in an interval.

    A random byte is drawn for each element, and 16 more bits for these.

    Args:
        low: at least 0.
        high: less than 1, and not less than `low`.

    Returns:
        uint8, for each element 1 where its draw is below `low`, 0 elsewhere; the indices of the
        elements whose draw may lie in the interval; float64, the draws of these.
    """
    first, last = int(low * 256.0), int(high * 256.0)
    draw = _bytes(key, block, count)
    below = draw < np.uint8(first)
    between = np.flatnonzero(draw - np.uint8(first) <= np.uint8(last - first))
    words = _words(key, block, _MORE_BITS, -(-len(between) // 4))
    more = words.astype("<u8", copy=False).view("<u2")[: len(between)]
    return below.view(np.uint8), between, (draw[between] * 65536.0 + more) * 2.0**-24


def _bytes(key: str, block: Block, count: int) -> np.ndarray:
    """A random byte for each element."""
    words = _words(key, block, _FIRST_BITS, -(-count // 8))
    return words.astype("<u8", copy=False).view(np.uint8)[:count]


def _words(key: str, block: Block, stream: int, count: int) -> np.ndarray:
    counter = (block.index << 128) | (stream << 64)
    return np.random.Philox(key=philox_key(key), counter=counter).random_raw(count)


def philox_key(key: str) -> int:
    """The 128 bits that key the generator."""
    return xxhash.xxh3_128_intdigest(key.encode())
