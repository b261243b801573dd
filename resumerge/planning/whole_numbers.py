"""Tensors of whole numbers, such as counters and positions: the output copies one model's.

No method merges these tensors. Some files store them as floats.
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
"""The most bytes that planning reads to compare whole numbers. Counters and positions are small;
larger tensors are not compared, so that planning stays quick."""

_POSITIONS = re.compile(
    r"(^|\.)(position_ids|token_type_ids|num_batches_tracked|relative_position_index)$"
)
"""The names of buffers that hold whole numbers, even if a file stores them as floats."""

_BUFFERS = {"I64", "BOOL"}
"""The dtypes that only buffers have. Other dtypes that are no floats may be quantised weights'."""

_NUMBERS: dict[str, str] = {
    **{"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "u2", "I16": "i2", "F16": "f2"},
    **{"U32": "u4", "I32": "i4", "F32": "f4", "U64": "u8", "I64": "i8", "F64": "f8", "BF16": "u2"},
}
"""The numpy dtype of each dtype; BF16 is read as integers, the upper halves of float32."""


def is_position(tensor: Tensor) -> bool:
    """Return whether a tensor's name says that it holds whole numbers, whatever its dtype."""
    return _POSITIONS.search(tensor.name) is not None


def chosen_input(of_inputs: Sequence[Tensor | None], guide: int) -> int | None:
    """Return the number of the input whose whole numbers are taken; None if tensors are merged.

    The guide is taken if its tensor is stored as whole numbers, or if all tensors are floats.
    Otherwise the first input whose tensor is stored as whole numbers is taken, because floats may
    be rounded.

    Args:
        of_inputs: the tensor of each input; None for an input without it.
        guide: the number of the input that decides which tensors the output has.
    """
    present_tensors = [tensor for tensor in of_inputs if tensor is not None]
    whole_inputs = [i for i, t in enumerate(of_inputs) if t is not None and t.dtype not in FLOATS]
    if not whole_inputs:
        return (
            guide
            if any(map(is_position, present_tensors)) and of_inputs[guide] is not None
            else None
        )
    if len(whole_inputs) < len(present_tensors) and not any(map(is_computed, present_tensors)):
        whole_dtypes = {tensor.dtype for tensor in present_tensors} - FLOATS.keys()
        if not whole_dtypes <= _BUFFERS or len({tensor.shape for tensor in present_tensors}) > 1:
            return None
    return guide if guide in whole_inputs else whole_inputs[0]


def notes_on_differences(
    recipe: Recipe, models: ModelViews, specs: Iterable[TensorSpec], *, flat: bool
) -> list[str]:
    """Return notes on tensors of whole numbers that differ between models.

    Args:
        recipe: the recipe, whose base models decide the guide of each slice.
        models: the models that the tensors are looked up and read in.
        specs: every tensor of the output.
        flat: whether tensors are matched by name alone. If not, tensors that transformers computes
            when it loads a model are not compared.
    """
    copied_tensors: dict[ModelRef, dict[str, list[Tensor]]] = defaultdict(dict)
    for spec in specs:
        inputs = spec.slice_.inputs
        if len(inputs) == 1 or spec.module is None:
            continue
        of_inputs = [models.find(i.model, name) for i, name in zip(inputs, spec.names)]
        input_number = chosen_input(of_inputs, inputs.index(guide_of(recipe, spec.slice_)))
        present_tensors = [tensor for tensor in of_inputs if tensor is not None]
        if input_number is not None and (flat or not any(map(is_computed, present_tensors))):
            copied_tensors[inputs[input_number].model][spec.name] = present_tensors
    sources_with_files = {
        source.number: source for source in models.sources.values() if source.files
    }
    notes = []
    for ref, tensors in copied_tensors.items():
        differing_names, unread_names = differing_tensors(tensors, sources_with_files)
        for names, reason in (
            (differing_names, "not the same in all models"),
            (unread_names, "not compared (large, not downloaded, or of a stage)"),
        ):
            if names:
                notes.append(
                    f"{counted(len(names), 'tensor')} of whole numbers, {reason}, taken from "
                    f"{ref}: {listed(names)}"
                )
    return notes


def differing_tensors(
    tensors: Mapping[str, Sequence[Tensor]], sources: Mapping[int, Source]
) -> tuple[list[str], list[str]]:
    """Return the names of the tensors that differ between models, and of those not compared.

    Args:
        tensors: the tensor of each model that has it, by name.
        sources: the sources with files, by their numbers (`Stored.source`).

    Returns:
        (names of tensors that differ, names of tensors that were not compared). A tensor is not
        compared if its file is not on this machine, if it is the result of a stage, or if it and
        all smaller tensors together are larger than `LARGEST`.

    Raises:
        Resumable: a file cannot be read now.
    """
    differing_names, unread_names = [], []
    bytes_left = LARGEST
    sorted_tensors = sorted(tensors.items(), key=lambda item: (item[1][0].nbytes, item[0]))
    with closing(SourceReader(sources)) as reader:
        for name, model_tensors in sorted_tensors:
            tensor_bytes = sum(tensor.nbytes for tensor in model_tensors)
            dtypes = {tensor.dtype for tensor in model_tensors}
            is_comparable = len(dtypes) == 1 or dtypes <= _NUMBERS.keys()
            if len({tensor.shape for tensor in model_tensors}) > 1 or not is_comparable:
                differing_names.append(name)
            elif tensor_bytes > bytes_left or not all(
                _is_here(tensor, sources) for tensor in model_tensors
            ):
                unread_names.append(name)
            else:
                bytes_left -= tensor_bytes
                first_numbers, *other_numbers = (_read(tensor, reader) for tensor in model_tensors)
                if not all(np.array_equal(first_numbers, numbers) for numbers in other_numbers):
                    differing_names.append(name)
    return sorted(differing_names), sorted(unread_names)


def _is_here(tensor: Tensor, sources: Mapping[int, Source]) -> bool:
    stored = list(stored_in(tensor))
    in_files = all(s.source in sources for s in stored)
    return in_files and all(sources[s.source].files[s.file].present for s in stored)


def _read(tensor: Tensor, reader: SourceReader) -> np.ndarray:
    """Return the numbers of a tensor, flattened; its bytes (uint8) if numpy lacks the dtype."""
    data = np.empty(tensor.nbytes, np.uint8)
    evaluation = Evaluation(reader, Buffers(), HeldValues(0), _no_method, {})
    tensor.read(evaluation, 0, tensor.numel, data)
    if tensor.dtype not in _NUMBERS:
        return data
    numbers = data.view(_NUMBERS[tensor.dtype])
    if tensor.dtype == "BF16":
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers


def _no_method(tensor: Any) -> NoReturn:
    raise AssertionError(f"{tensor.name} is merged")
