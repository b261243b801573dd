"""Exact order statistics of whole vectors, computed without sorting and in little memory.

The bits of a float32, with the sign bit cleared or folded in, are a key: an integer in the order of
the floats. A sample suggests a bracket: two keys between which the k-th largest key is expected.
One scan counts the keys above the bracket and collects the few keys inside it. If the k-th largest
key is inside, it is found among them. If it is outside, two histograms find it: of the upper 16
bits, then of the lower 16 bits in the bin of the k-th largest. Both ways are exact. Of the elements
that are equal to the k-th largest, the ones with the lowest indices are kept, until k elements are
kept. NaN counts as larger than any number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from resumerge.kernels.blocks import BlockRun, Scan
from resumerge.kernels.selection.bracket_keys import BracketKeys
from resumerge.kernels.selection.histograms import VectorRank, find_by_histograms
from resumerge.kernels.selection.key_sample import Bracket, KeySample
from resumerge.kernels.selection.keys import Key, equal_counts, keys_of
from resumerge.kernels.selection.limits import sample_step
from resumerge.kernels.selection.selection import Selection
from resumerge.native import Vector, _kernels

Vectors = dict[int, Vector]
ScanVectors = Scan[Any]


def select_largest(kept: Mapping[int, int], numel: int, scan: ScanVectors) -> dict[int, Selection]:
    """Find the elements of largest magnitude of several vectors in the same scans.

    Args:
        kept: for each vector, the number of elements to keep, at most `numel`.
        numel: the number of elements of each vector.
        scan: a scan over dictionaries of the vectors' runs.

    Returns:
        the selection of each vector.
    """
    selections_of_vectors = select({i: (k,) for i, k in kept.items()}, numel, scan)
    return {i: selections[0] for i, selections in selections_of_vectors.items()}


def select(
    ranks: Mapping[int, Sequence[int]],
    numel: int,
    scan: ScanVectors,
    key: Key = Key.MAGNITUDE,
) -> dict[int, list[Selection]]:
    """Find the k largest elements of several vectors, for several k of each vector.

    Args:
        ranks: for each vector, the numbers k of elements to keep, each at most `numel`.
        numel: the number of elements of each vector.
        scan: a scan over dictionaries of the vectors' runs.
        key: the order of the elements.

    Returns:
        for each vector, its selections in the order of its `ranks`.
    """
    vector_ranks = sorted({(i, k) for i, ks in ranks.items() for k in ks if k > 0})
    selections = _select_in_brackets(vector_ranks, numel, scan, key) if vector_ranks else {}
    missed_ranks = {vector_rank for vector_rank in vector_ranks if vector_rank not in selections}
    found_keys = find_by_histograms(missed_ranks, scan, key) if missed_ranks else {}
    selections |= {
        vector_rank: Selection(found_key.key, found_key.rank)
        for vector_rank, found_key in found_keys.items()
    }
    at_ties = [
        vector_rank
        for vector_rank, found_key in found_keys.items()
        if found_key.rank < found_key.equal
    ]
    if at_ties:
        counts: dict[VectorRank, list[int]] = {vector_rank: [] for vector_rank in at_ties}
        for run_counts in scan(lambda v, run: _equal_counts(v, at_ties, selections, key, run)):
            for vector_rank in at_ties:
                counts[vector_rank] += run_counts[vector_rank]
        for vector_rank in at_ties:
            selections[vector_rank] = Selection.of(
                selections[vector_rank].threshold,
                selections[vector_rank].equal,
                counts[vector_rank],
            )
    no_selection = Selection(threshold=0, equal=0)
    return {i: [selections.get((i, k), no_selection) for k in ks] for i, ks in ranks.items()}


def order_statistics(
    ranks: Mapping[int, Sequence[int]],
    numel: int,
    scan: ScanVectors,
    key: Key = Key.MAGNITUDE,
) -> dict[int, list[int]]:
    """Return the keys of the k-th largest elements of several vectors; for arguments, see `select`.

    Returns:
        for each vector, its keys in the order of its `ranks`.
    """
    selections_of_vectors = select(ranks, numel, scan, key)
    return {i: [selection.threshold for selection in selections_of_vectors[i]] for i in ranks}


def _select_in_brackets(
    vector_ranks: Sequence[VectorRank], numel: int, scan: ScanVectors, key: Key
) -> dict[VectorRank, Selection]:
    """Return the selections whose threshold is inside the bracket that a sample suggests.

    One scan reads the sample. Another scan reads every element, counts the keys above each bracket
    and collects the keys inside. The result has no entry for a k-th largest that is outside its
    bracket, or whose bracket contains too many keys. An entry does not depend on the sample.
    """
    brackets = _brackets(vector_ranks, numel, scan, key)
    bracket_keys = {vector_rank: BracketKeys(vector_rank[1], numel) for vector_rank in brackets}
    if brackets:
        for run_keys in scan(lambda v, run: _keys_in_brackets(v, brackets, key, run)):
            for vector_rank, keys in run_keys.items():
                bracket_keys[vector_rank].add(*keys)
    selections = {
        vector_rank: keys_inside.selection() for vector_rank, keys_inside in bracket_keys.items()
    }
    return {
        vector_rank: selection
        for vector_rank, selection in selections.items()
        if selection is not None
    }


def _brackets(
    vector_ranks: Sequence[VectorRank], numel: int, scan: ScanVectors, key: Key
) -> dict[VectorRank, Bracket]:
    """Return the bracket, (smallest key, largest key), in which each k-th largest is expected."""
    ranks = {i: [k for j, k in vector_ranks if j == i] for i, _ in vector_ranks}
    samples = {i: KeySample(numel) for i in ranks}
    step = sample_step(numel)
    for run_sample, blocks in scan(lambda v, run: (_sample(v, ranks, key, step), len(run)), True):
        for i, keys in run_sample.items():
            samples[i].add(keys, blocks)
    return {
        (i, k): bracket
        for i, ks in ranks.items()
        for k, bracket in samples.pop(i).brackets(ks).items()
    }


def _sample(vectors: Vectors, wanted: Iterable[int], key: Key, step: int) -> dict[int, np.ndarray]:
    return {i: keys_of(vectors[i], key)[::step].copy() for i in wanted}


def _keys_in_brackets(
    vectors: Vectors, brackets: Mapping[VectorRank, Bracket], key: Key, run: BlockRun
) -> dict[VectorRank, tuple[int, bytes, bytes, list[int]]]:
    """Return the arguments of `BracketKeys.add` for each bracket.

    Each distinct key is stored once with a count. Differences of 16-bit numbers have few distinct
    values, and a bracket may contain a large share of the tensor.
    """
    return {
        (i, k): _kernels.keys_in_bracket(vectors[i], key.value, int(low), int(high), run.size)
        for (i, k), (low, high) in brackets.items()
    }


def _equal_counts(
    vectors: Vectors,
    at_ties: Sequence[VectorRank],
    selections: Mapping[VectorRank, Selection],
    key: Key,
    run: BlockRun,
) -> dict[VectorRank, list[int]]:
    return {
        (i, k): equal_counts(vectors[i], key, selections[i, k].threshold, run.size)
        for i, k in at_ties
    }
