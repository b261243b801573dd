"""Tensors of whole numbers, such as counters and positions: one model's are taken.

No method merges them. Some files hold them as floats.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, NoReturn

import numpy as np

from resumerge.layout import is_computed, listed
from resumerge.layout.model_views import ModelViews
from resumerge.planning.tensor_specs import TensorSpec, guide_of
from resumerge.recipe import ModelRef, Recipe
from resumerge.sizes import counted
from resumerge.sources.reader import SourceReader
from resumerge.sources.types import Source
from resumerge.tensors import Tensor, stored_in
from resumerge.tensors.buffers import Buffers
from resumerge.tensors.dtypes import FLOATS
from resumerge.tensors.evaluation import Evaluation, HeldValues

LARGEST = 8 << 20
"""Bytes that are read for a plan. Counters and positions are small; a plan does not wait for the
others."""

_POSITIONS = re.compile(
    r"(^|\.)(position_ids|token_type_ids|num_batches_tracked|relative_position_index)$"
)
"""The names of buffers that are whole numbers, also where files hold them as floats."""

_BUFFERS = {"I64", "BOOL"}
"""The types that buffers alone have. Others beside floats may be codes of quantised weights."""

_NUMBERS: dict[str, str] = {
    **{"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "u2", "I16": "i2", "F16": "f2"},
    **{"U32": "u4", "I32": "i4", "F32": "f4", "U64": "u8", "I64": "i8", "F64": "f8", "BF16": "u2"},
}
"""The types of numpy that hold the numbers; BF16 as the upper half of float32."""


def is_position(tensor: Tensor) -> bool:
    """Return whether a tensor holds whole numbers by its name, whatever its type."""
    return _POSITIONS.search(tensor.name) is not None


def taken(found: Sequence[Tensor | None], guide: int) -> int | None:
    """Return whose tensor is taken because it holds whole numbers; None if tensors are merged.

    It is the guide's, if that is stored as whole numbers or all are floats; else that of the first
    model that stores it as whole numbers, since floats may have rounded them.

    Args:
        found: the tensor of each input; None for an input without it.
        guide: the number of the input that decides which tensors there are.
    """
    there = [tensor for tensor in found if tensor is not None]
    whole = [i for i, t in enumerate(found) if t is not None and t.dtype not in FLOATS]
    if not whole:
        return guide if any(map(is_position, there)) and found[guide] is not None else None
    if len(whole) < len(there) and not any(map(is_computed, there)):
        types = {tensor.dtype for tensor in there} - FLOATS.keys()
        if not types <= _BUFFERS or len({tensor.shape for tensor in there}) > 1:
            return None
    return guide if guide in whole else whole[0]


def notes_on_differences(
    recipe: Recipe, models: ModelViews, specs: Iterable[TensorSpec], *, flat: bool
) -> list[str]:
    """Return notes on tensors of whole numbers that differ between models.

    Args:
        recipe: the recipe.
        models: the models.
        specs: every tensor of the output.
        flat: whether tensors are matched by name alone. Else those that transformers computes when
            it loads the model do not count.
    """
    copied: dict[ModelRef, dict[str, list[Tensor]]] = defaultdict(dict)
    for spec in specs:
        inputs = spec.slice_.inputs
        if len(inputs) == 1 or spec.module is None:
            continue
        found = [models.find(i.model, name) for i, name in zip(inputs, spec.names)]
        number = taken(found, inputs.index(guide_of(recipe, spec.slice_)))
        there = [tensor for tensor in found if tensor is not None]
        if number is not None and (flat or not any(map(is_computed, there))):
            copied[inputs[number].model][spec.name] = there
    with_files = {source.number: source for source in models.sources.values() if source.files}
    notes = []
    for ref, tensors in copied.items():
        differing, unread = compare(tensors, with_files)
        for names, why in (
            (differing, "not the same in all models"),
            (unread, "not compared (large, not downloaded, or of a stage)"),
        ):
            if names:
                notes.append(
                    f"{counted(len(names), 'tensor')} of whole numbers, {why}, taken from "
                    f"{ref}: {listed(names)}"
                )
    return notes


def compare(
    tensors: Mapping[str, Sequence[Tensor]], sources: Mapping[int, Source]
) -> tuple[list[str], list[str]]:
    """Return the tensors that differ as numbers between models, and those that were not compared.

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
            types = {tensor.dtype for tensor in alike}
            comparable = len(types) == 1 or types <= _NUMBERS.keys()
            if len({tensor.shape for tensor in alike}) > 1 or not comparable:
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
    """Return the numbers of a tensor, flat; its bytes (uint8) where numpy has no such numbers."""
    found = np.empty(tensor.nbytes, np.uint8)
    evaluation = Evaluation(reader, Buffers(), HeldValues(0), _no_method, {})
    tensor.read(evaluation, 0, tensor.numel, found)
    if tensor.dtype not in _NUMBERS:
        return found
    numbers = found.view(_NUMBERS[tensor.dtype])
    if tensor.dtype == "BF16":
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers


def _no_method(tensor: Any) -> NoReturn:
    raise AssertionError(f"{tensor.name} is merged")
