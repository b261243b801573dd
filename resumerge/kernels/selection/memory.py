"""What a selection holds in memory, said without loading torch: for the estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence

SAMPLED, THINNED = 16, 4
"""A sampling scan reads one element in so many; of these, at most one in so many is looked at."""
LARGEST_SAMPLE = 1 << 21
"""Elements, 4 bytes each; where it would be larger, fewer are looked at."""
MOST_COLLECTED = 1 << 22
"""Keys inside a bracket, with their counts 8 bytes each, kept until all blocks were seen."""
STANDARD_ERRORS = 3.5
"""How far a bracket reaches to both sides of where a sample says the threshold is: a miss, of which
there are fewer than one in a thousand, costs two scans."""
EQUAL = 8
"""Of the differences of 16-bit numbers, at least so many inside a block's bracket are equal."""


def sample_step(numel: int) -> int:
    """Of the elements that a sampling scan reads, one in how many belongs to the sample."""
    step = THINNED
    while numel // (SAMPLED * step) > LARGEST_SAMPLE:
        step *= 2
    return step


def selection_bytes(numel: int, shares: Sequence[Sequence[float]], bits: int = 32) -> int:
    """What finding the k-th largest of several vectors at once holds: samples, then brackets.

    Args:
        numel: elements of each vector, as if they were independent of each other.
        shares: for each vector, the k wanted of it, each as a share of the elements.
        bits: of the numbers that the vectors are differences of.
    """
    if not shares:
        return 0
    sample = max(1, numel // (SAMPLED * sample_step(numel)))
    brackets = largest = 0
    for p in (p for ps in shares for p in ps):
        # A standard error of the elements, at its largest, and one of the blocks.
        errors = 0.5 + math.sqrt(max(0.0, p * (1.0 - p)))
        inside = int(2 * STANDARD_ERRORS * errors * numel / math.sqrt(sample))
        different = inside if bits > 16 else inside // EQUAL
        held = min(different, numel, MOST_COLLECTED)
        brackets += 8 * held  # keys and counts
        largest = max(largest, held)
    samples = (len(shares) + 1) * sample  # as collected, and one of them sorted
    return max(4 * samples, brackets + 5 * largest)  # looking for a rank among one's keys
