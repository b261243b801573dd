"""Order statistics of whole vectors, exactly, without sorting them and in little memory.

The bits of a float32, its sign bit put aside or folded in, are ordered as the float is. A sample
says between which two keys the k-th largest is to be expected; counting what is above, and the few
that are between, finds it. If it is not there, two histograms (of the upper 16 bits, then
of the lower 16 in the bin that the k-th falls into) do. Both ways give the k-th largest exactly.
Elements equal to it are kept in the order of their index until k are kept. NaN counts as larger
than any number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from resumerge.kernels.blocks import Scan
from resumerge.kernels.selection.collected import Collected
from resumerge.kernels.selection.histograms import Which, find
from resumerge.kernels.selection.keys import KINDS, Bits, Key, magnitude_bits
from resumerge.kernels.selection.memory import sample_step
from resumerge.kernels.selection.sampled import Bracket, Sampled
from resumerge.kernels.selection.selected import Selection
from resumerge.native import Vector, calls

Vectors = dict[int, Any]
ScanVectors = Scan[Any]


def select_largest(kept: Mapping[int, int], numel: int, scan: ScanVectors) -> dict[int, Selection]:
    """Find the largest magnitudes of several vectors at once.

    Args:
        kept: for each vector, how many elements to keep, at most `numel`.
        numel: elements of each vector.
        scan: runs a function over every block of the vectors.
    """
    found = select({i: (k,) for i, k in kept.items()}, numel, scan)
    return {i: selections[0] for i, selections in found.items()}


def select(
    ranks: Mapping[int, Sequence[int]],
    numel: int,
    scan: ScanVectors,
    key: Key = magnitude_bits,
) -> dict[int, list[Selection]]:
    """Find the k largest of several vectors, for several k of each.

    Args:
        ranks: for each vector, the numbers k of elements to keep, at most `numel`.
        numel: elements of each vector.
        scan: runs a function over every block of the vectors.
        key: what elements are ordered by.
    """
    wanted = sorted({(i, k) for i, ks in ranks.items() for k in ks if k > 0})
    found = _guess(wanted, numel, scan, key) if wanted else {}
    missed = {which for which in wanted if which not in found}
    places = find(missed, scan, key) if missed else {}
    found |= {which: Selection(place.key, place.rank) for which, place in places.items()}
    split = [which for which, place in places.items() if place.rank < place.equal]
    if split:
        rows = list(scan(lambda v, block: _equal_counts(v, split, found, key)))
        for which, counts in zip(split, zip(*rows)):
            found[which].before = [0, *accumulate(counts)]
    nothing = Selection(threshold=0, equal=0)
    return {i: [found.get((i, k), nothing) for k in ks] for i, ks in ranks.items()}


def order_statistics(
    ranks: Mapping[int, Sequence[int]],
    numel: int,
    scan: ScanVectors,
    key: Key = magnitude_bits,
) -> dict[int, list[int]]:
    """The keys of the k-th largest elements of several vectors, for several k (from 1) of each."""
    found = select(ranks, numel, scan, key)
    return {i: [selection.threshold for selection in found[i]] for i in ranks}


def _guess(
    wanted: Sequence[Which], numel: int, scan: ScanVectors, key: Key
) -> dict[Which, Selection]:
    """The selections whose threshold lies where a sample says.

    One scan over the sample, and one over everything that counts what is above a bracket and
    collects what is inside. Where the k-th largest is not among those, or where they are too many,
    nothing is returned for it: what is returned never depends on the sample.
    """
    brackets = _brackets(wanted, numel, scan, key)
    inside = {which: Collected(which[1], numel, low) for which, (low, _) in brackets.items()}
    if brackets:
        for part in scan(lambda v, block: _around(v, brackets, key)):
            for which, (above, keys, counts) in part.items():
                inside[which].add(above, keys, counts)
    found = {which: collected.selection() for which, collected in inside.items()}
    return {which: selection for which, selection in found.items() if selection is not None}


def _brackets(
    wanted: Sequence[Which], numel: int, scan: ScanVectors, key: Key
) -> dict[Which, Bracket]:
    """The least and the greatest key that each k-th largest is expected between."""
    ranks = {i: [k for j, k in wanted if j == i] for i, _ in wanted}
    samples = {i: Sampled(numel) for i in ranks}
    step = sample_step(numel)
    for part in scan(lambda v, block: {i: key(_every(v[i], step)) for i in ranks}, True):
        for i, keys in part.items():
            samples[i].add(keys)
    return {
        (i, k): bracket
        for i, ks in ranks.items()
        for k, bracket in samples.pop(i).brackets(ks).items()
    }


def _every(vector: Any, step: int) -> Any:
    return vector.every(step) if isinstance(vector, Vector) else vector[::step]


def _around(
    vectors: Vectors, brackets: Mapping[Which, Bracket], key: Key
) -> dict[Which, tuple[int, Bits, np.ndarray]]:
    """How many elements are above each bracket, and the keys inside with how many have them.

    Counted here, not collected as they are: differences of 16-bit numbers are few different ones,
    and a bracket may hold a large share of the tensor.
    """
    found = {}
    keys: dict[int, Bits] = {}
    for (i, k), (low, high) in brackets.items():
        if isinstance(vectors[i], Vector):
            found[i, k] = calls.around(vectors[i], KINDS[key], int(low), int(high))
            continue
        bits = keys[i] if i in keys else keys.setdefault(i, key(vectors[i]))
        inside = np.flatnonzero(bits - low <= high - low)
        different, counts = np.unique(bits[inside], return_counts=True)
        found[i, k] = (int(np.count_nonzero(bits > high)), different, counts.astype(np.uint32))
    return found


def _equal_counts(
    vectors: Vectors,
    split: Sequence[Which],
    found: Mapping[Which, Selection],
    key: Key,
) -> list[int]:
    return [_equal_count(vectors[i], found[i, k].threshold, key) for i, k in split]


def _equal_count(vector: Any, threshold: int, key: Key) -> int:
    if isinstance(vector, Vector):
        return calls.equal_count(vector, KINDS[key], threshold)
    return int(np.count_nonzero(key(vector) == np.uint32(threshold)))
