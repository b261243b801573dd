"""Check that adapters' numbers are finite: NaN or infinity spreads over whole output tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np

from resumerge.errors import Problem
from resumerge.kernels import BlockRun, l1_norms
from resumerge.planning import Plan
from resumerge.sizes import some
from resumerge.sources.reader import SourceReader
from resumerge.sources.types import Source
from resumerge.tensors import Stored, stored_in
from resumerge.tensors.dtypes import FLOATS, nbytes
from resumerge.tensors.evaluation import as_vector

PIECE_ELEMENTS = 1 << 20
"""The number of elements that are read at once."""

SHOWN = 5
"""The most tensor names in a message."""


def check_adapters(plan: Plan) -> Iterator[Problem]:
    """Yield a problem for each adapter on this disk that contains NaN or infinity.

    Adapters that are not on this disk are not read. If their numbers are not finite, the merge ends
    with a warning (`engine/changes`).
    """
    for source in plan.sources:
        with closing(SourceReader([source])) as reader:
            adapter_tensors = _adapter_tensors(source)
            not_finite = sorted(
                tensor.name for tensor in adapter_tensors if not _is_finite(reader, tensor)
            )
        if not_finite:
            yield Problem(
                "The adapter has numbers that are not finite",
                where=(source.adapter or source).ref.text,
                expected="numbers; NaN and infinity spread over whole tensors of the output",
                found=some(not_finite, most=SHOWN),
                fix="take an earlier checkpoint of the training: it has diverged; or download the "
                "adapter again",
            )


def _adapter_tensors(source: Source) -> Iterator[Stored]:
    """Yield the tensors of an adapter that are used and stored on this disk."""
    if source.adapter is None and not source.is_adapter:
        return
    for stored_tensor in {t for tensor in source.tensors.values() for t in stored_in(tensor)}:
        is_of_adapter = source.is_adapter or stored_tensor.file.startswith("adapter/")
        if (
            is_of_adapter
            and stored_tensor.dtype in FLOATS
            and source.files[stored_tensor.file].present
        ):
            yield stored_tensor


def _is_finite(reader: SourceReader, stored: Stored) -> bool:
    strides = stored.strides or ()
    last_element = sum((length - 1) * step for length, step in zip(stored.shape, strides))
    element_count = last_element + 1 if strides and stored.numel else stored.numel
    for start in range(0, element_count, PIECE_ELEMENTS):
        stop = min(start + PIECE_ELEMENTS, element_count)
        buffer = np.empty(nbytes(stored.dtype, stop - start), np.uint8)
        offset = stored.offset + nbytes(stored.dtype, start)
        reader.fill(replace(stored, source=0), offset, buffer.data)
        piece = as_vector(buffer, stored.dtype)
        if not np.isfinite(l1_norms(piece, None, BlockRun(0, len(piece), len(piece)))).all():
            return False
    return True
