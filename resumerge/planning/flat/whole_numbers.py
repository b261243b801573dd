"""A comparison of tensors of whole numbers, such as counters and positions, over all models.

No method merges them, so one model's are taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NoReturn

import numpy as np

from resumerge.sources.reader import SourceReader
from resumerge.sources.types import Source
from resumerge.tensors import Tensor, stored_in
from resumerge.tensors.buffers import Buffers
from resumerge.tensors.evaluation import Evaluation, HeldValues

LARGEST = 8 << 20
"""Bytes that are read for a plan. Counters and positions are small; a plan does not wait for the
others."""


def compare(
    tensors: Mapping[str, Sequence[Tensor]], sources: Mapping[int, Source]
) -> tuple[list[str], list[str]]:
    """Return the tensors that differ between models, and those that were not compared.

    Args:
        tensors: the tensor of each model that has it, by name.
        sources: the sources with files, by the numbers that stored tensors state.

    Returns:
        (names of those that differ, names of those that were not compared): their files are not on
        this disk, they are a stage's, or all that is compared would be more than `LARGEST`, the
        smallest first.

    Raises:
        Resumable: a file cannot be read now.
    """
    differing, unread = [], []
    left = LARGEST
    ascending = sorted(tensors.items(), key=lambda item: (item[1][0].nbytes, item[0]))
    with closing(SourceReader(sources)) as reader:
        for name, alike in ascending:
            size = sum(tensor.nbytes for tensor in alike)
            if len({(tensor.dtype, tensor.shape) for tensor in alike}) > 1:
                differing.append(name)
            elif size > left or not all(_is_here(tensor, sources) for tensor in alike):
                unread.append(name)
            else:
                left -= size
                first, *others = (_read(tensor, reader) for tensor in alike)
                if not all(np.array_equal(first, other) for other in others):
                    differing.append(name)
    return sorted(differing), sorted(unread)


def _is_here(tensor: Tensor, sources: Mapping[int, Source]) -> bool:
    stored = list(stored_in(tensor))
    known = all(s.source in sources for s in stored)
    return known and all(sources[s.source].files[s.file].present for s in stored)


def _read(tensor: Tensor, reader: SourceReader) -> np.ndarray:
    """Return the bytes (uint8) of a tensor."""
    found = np.empty(tensor.nbytes, np.uint8)
    evaluation = Evaluation(reader, Buffers(), HeldValues(0), _no_method, {})
    tensor.read(evaluation, 0, tensor.numel, found)
    return found


def _no_method(tensor: Any) -> NoReturn:
    raise AssertionError(f"{tensor.name} is merged")
