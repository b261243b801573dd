"""The limits of a selection, and the estimate of its memory for a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence

SAMPLED, THINNED = 16, 4
"""The thinning of a sample: a scan reads one in `SAMPLED` elements, and keeps one in `THINNED`."""
LARGEST_SAMPLE = 1 << 21
"""The largest number of elements in a sample, 4 bytes each; a larger sample is thinned further."""
MOST_COLLECTED = 1 << 22
"""The largest number of keys collected inside a bracket, 8 bytes each with their counts."""
STANDARD_ERRORS = 3.5
"""Half the width of a bracket around the threshold that a sample suggests, in standard errors.

Fewer than one bracket in a thousand misses the threshold; a miss costs two more scans.
"""
MIN_EQUAL = 8
"""The smallest number of elements per key in a block's bracket, for models of 16-bit numbers."""


def sample_step(numel: int) -> int:
    """Return n: the sample has one in n of the elements that a sampling scan reads."""
    step = THINNED
    while numel // (SAMPLED * step) > LARGEST_SAMPLE:
        step *= 2
    return step


def selection_bytes(numel: int, shares: Sequence[Sequence[float]], bits: int = 32) -> int:
    """Return the memory of a selection in several vectors at once, in bytes.

    The memory holds samples first, and brackets later.

    Args:
        numel: the number of elements of each vector; they are treated as independent.
        shares: for each vector, the ranks k, each as a share of the elements.
        bits: the width of the numbers in the models; the vectors are differences of such numbers.
    """
    if not shares:
        return 0
    sample_size = max(1, numel // (SAMPLED * sample_step(numel)))
    bracket_bytes = largest_bracket = 0
    for p in (p for ps in shares for p in ps):
        # The largest possible standard error of the elements, and the standard error of the blocks.
        errors = 0.5 + math.sqrt(max(0.0, p * (1.0 - p)))
        keys_inside = int(2 * STANDARD_ERRORS * errors * numel / math.sqrt(sample_size))
        distinct_keys = keys_inside if bits > 16 else keys_inside // MIN_EQUAL
        collected_keys = min(distinct_keys, numel, MOST_COLLECTED)
        bracket_bytes += 8 * collected_keys  # keys and counts
        largest_bracket = max(largest_bracket, collected_keys)
    sampled_keys = (len(shares) + 1) * sample_size  # the collected samples, and one sorted copy
    mask_bytes = largest_bracket  # which keys of one k's bracket are at its threshold
    return max(4 * sampled_keys, bracket_bytes + mask_bytes)
