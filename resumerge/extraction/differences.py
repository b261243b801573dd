"""Whether tensors of two models differ: each pair is read up to its first difference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from resumerge.sources.reader import SourceReader
from resumerge.sources.types import Source
from resumerge.tensors import Tensor
from resumerge.tensors.buffers import Buffers
from resumerge.tensors.dtypes import FLOATS, nbytes
from resumerge.tensors.evaluation import Evaluation, HeldValues

FIRST, LARGEST = 1 << 12, 1 << 20
"""The elements that are compared first, and the most at once. Most differing tensors differ
early."""

HELD_BYTES = 64 << 20
"""The bytes of adapters' matrices that are held while tensors are compared."""


EvaluationOf = Callable[[Iterable[Tensor]], Evaluation]
"""A function that returns the evaluation that reads tensors."""

OpenTensors = Callable[[Mapping[Any, Source]], AbstractContextManager[EvaluationOf]]
"""A function that returns a context in which the tensors of models can be read."""


@contextmanager
def open_tensors(sources: Mapping[Any, Source]) -> Iterator[EvaluationOf]:
    """Yield the means to read models' tensors; remote files outside the cache are streamed."""
    source_by_number = {
        source.number: replace(source, streams=True) for source in sources.values() if source.files
    }
    reader = SourceReader(source_by_number)
    try:
        evaluation = Evaluation(reader, Buffers(), HeldValues(HELD_BYTES), _no_method, {})
        yield lambda tensors: evaluation
    finally:
        reader.close()


def differ(evaluation_of: EvaluationOf, pairs: Iterable[tuple[Tensor, Tensor]]) -> bool:
    """Return whether the tensors of any pair have different shapes or numbers.

    Raises:
        Resumable: a file cannot be read now.
    """
    return any(_differs(evaluation_of, own, other) for own, other in pairs)


def _differs(evaluation_of: EvaluationOf, own: Tensor, other: Tensor) -> bool:
    if own.shape != other.shape:
        return True
    evaluation = evaluation_of((own, other))
    start, count = 0, FIRST
    while start < own.numel:
        stop = min(start + count, own.numel)
        own_numbers, other_numbers = (
            _numbers(evaluation, tensor, start, stop) for tensor in (own, other)
        )
        if not np.array_equal(own_numbers, other_numbers):
            return True
        start, count = stop, min(8 * count, LARGEST)
    return False


def _numbers(evaluation: Evaluation, tensor: Tensor, start: int, stop: int) -> np.ndarray:
    if tensor.dtype in FLOATS:
        return tensor.floats(evaluation, start, stop)
    data = np.empty(nbytes(tensor.dtype, stop - start), np.uint8)
    tensor.read(evaluation, start, stop, data)
    return data


def _no_method(tensor: Any) -> NoReturn:
    raise AssertionError(f"{tensor.name} is merged")
