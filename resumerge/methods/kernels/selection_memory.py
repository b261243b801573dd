"""What a selection holds in memory, said without loading torch: for the estimate."""

from __future__ import annotations

import math

SAMPLED, THINNED = 16, 4
"""A sample is one element in so many; of the sample, one in so many is looked at."""
LARGEST_SAMPLE = 1 << 21
"""Elements, 4 bytes each; beyond that, it is thinned out."""
MOST_COLLECTED = 1 << 22
"""Keys inside a bracket, with their counts 8 bytes each, kept until all blocks were seen."""
STANDARD_ERRORS = 5.0
"""How far a bracket reaches to both sides of where a sample says the threshold is."""


def selection_bytes(numel: int, vectors: int, ranks: int = 1) -> int:
    """What finding the k-th largest of several vectors at once holds: samples, then brackets.

    Args:
        numel: elements of each vector, as if they were independent of each other.
        ranks: how many k of each vector.
    """
    if not vectors:
        return 0
    sample = max(1, numel // (SAMPLED * THINNED))
    while sample > LARGEST_SAMPLE:
        sample //= 2
    # A standard error of the elements and one of the blocks, of at most 0.5 / sqrt(sample) each.
    bracket = int(2 * STANDARD_ERRORS * numel / math.sqrt(sample))
    bracket = min(bracket, numel, MOST_COLLECTED)
    samples = vectors * 2 * sample + sample  # as collected, and sorted
    brackets = vectors * ranks * bracket * 2  # keys and counts
    return 4 * max(samples, brackets)
