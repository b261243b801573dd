"""The key of a rank, by two histograms: of the upper 16 bits, and of the lower 16 in one bin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from resumerge.kernels.blocks import Scan
from resumerge.kernels.selection.keys import Bits, Key, keys_of
from resumerge.native import Vector

_LOW_BITS = 16
_BINS = 1 << _LOW_BITS

VectorRank = tuple[int, int]
"""The index of a vector, and a rank k in it; 1 is the rank of the largest element."""


@dataclass(frozen=True)
class FoundKey:
    """The key of the k-th largest element, as histograms find it.

    Args:
        key: the key of the k-th largest element.
        rank: the rank, from 1, of the k-th largest among the elements with this key.
        equal: the number of elements with this key.
    """

    key: int
    rank: int
    equal: int


def find_by_histograms(
    vector_ranks: Iterable[VectorRank], scan: Scan[Any], key: Key
) -> dict[VectorRank, FoundKey]:
    """Find the keys of several ranks, by two scans over the vectors.

    Args:
        vector_ranks: the ranks to find, each with its vector.
        scan: a scan over dictionaries of the vectors' runs.
        key: the order of the elements.
    """
    vectors = sorted({i for i, _ in vector_ranks})
    upper_counts = {i: np.zeros(_BINS, np.int64) for i in vectors}
    for run_histograms in scan(lambda v, run: {i: _histogram(keys_of(v[i], key)) for i in vectors}):
        for i, counts in run_histograms.items():
            upper_counts[i] += counts
    coarse_places = {(i, k): locate_bin(upper_counts[i], k) for i, k in sorted(vector_ranks)}
    bins = {
        i: sorted({place[0] for (j, _), place in coarse_places.items() if j == i}) for i in vectors
    }
    lower_counts = {
        (i, upper_bin): np.zeros(_BINS, np.int64) for i in vectors for upper_bin in bins[i]
    }
    for run_histograms in scan(lambda v, run: _low_histograms(v, bins, key)):
        for vector_and_bin, counts in run_histograms.items():
            lower_counts[vector_and_bin] += counts
    found_keys = {}
    for (i, k), (upper_bin, rank_in_bin) in coarse_places.items():
        counts = lower_counts[i, upper_bin]
        lower_bin, rank = locate_bin(counts, rank_in_bin)
        found_keys[i, k] = FoundKey(
            (upper_bin << _LOW_BITS) | lower_bin, rank, int(counts[lower_bin])
        )
    return found_keys


def _histogram(bits: Bits) -> np.ndarray:
    return np.bincount(bits >> _LOW_BITS, minlength=_BINS)


def _low_histograms(
    vectors: Mapping[int, Vector], bins: Mapping[int, Sequence[int]], key: Key
) -> dict[VectorRank, np.ndarray]:
    histograms = {}
    for i, upper_bins in bins.items():
        bits = keys_of(vectors[i], key)
        for upper_bin in upper_bins:
            offsets_in_bin = bits - np.uint32(upper_bin << _LOW_BITS)
            histograms[i, upper_bin] = np.bincount(
                offsets_in_bin[offsets_in_bin < _BINS], minlength=_BINS
            )
    return histograms


def locate_bin(counts: np.ndarray, k: int) -> tuple[int, int]:
    """Return the bin that contains the k-th largest, and its rank, from 1, within that bin."""
    above = np.cumsum(counts[::-1])
    position = int(np.searchsorted(above, k))
    bin_index = len(counts) - 1 - position
    return bin_index, k - int(above[position] - counts[bin_index])
