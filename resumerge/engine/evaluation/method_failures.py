"""Errors of a user's merge method during the computation, found before its result is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from resumerge.engine.resources.allocation_errors import is_out_of_memory
from resumerge.errors import Problem, Reason, Resumable, ResumergeError, StopSignal
from resumerge.methods import Block
from resumerge.methods.checked_answers import file_of, is_users, place_of_block
from resumerge.methods.user_code import is_raised_in, line_of, raised
from resumerge.native import Vector
from resumerge.tensors import Merged

_MEND = (
    "fix the method (see docs/extending.md), then resume: "
    "tensors that this code computed are computed again"
)


@contextmanager
def failures_named(merged: Merged) -> Iterator[None]:
    """Raise `Resumable` for any exception of a user's method in this context, even `SystemExit`.

    A `ResumergeError`, a stop signal, a read error of a source, and a lack of memory are raised
    unchanged.
    """
    try:
        yield
    except (ResumergeError, StopSignal):
        raise
    except BaseException as error:
        method_name = merged.method
        if not is_users(method_name):
            raise
        method_file = file_of(method_name)
        if isinstance(error, OSError) and not is_raised_in(method_file, error):
            raise  # a source cannot be read
        if isinstance(error, Exception) and is_out_of_memory(error):
            error.add_note(f"in your method {method_name!r}, {line_of(error, method_file)}")
            raise
        title = f"An error in your method {method_name!r}"
        raise _failure(merged, title, found=raised(error, method_file)) from error


def wrong_result(merged: Merged, blocks: Sequence[Block], expected: str, found: str) -> Resumable:
    """Return the error for a result that is not a valid block.

    Args:
        merged: the tensor whose merge method returned the result.
        blocks: the blocks that were to be computed.
        expected: a description of a valid result.
        found: a description of what the method returned or wrote.
    """
    element_range = f"elements {blocks[0].start} to {blocks[-1].stop}"
    method_name = merged.method
    title = f"The merge method {method_name!r} did not return a block"
    return _failure(
        merged, title, element_range, expected, f"{found} ({place_of_block(method_name)})"
    )


def kept_inputs_error(merged: Merged) -> Resumable:
    """Return the error for a partial result that refers to the inputs, which are overwritten."""
    return _failure(
        merged,
        f"The merge method {merged.method!r} keeps a reference to its inputs",
        "the function that statistics() passes to scan()",
        "new memory, or a copy: the next block overwrites the inputs",
        "a view of an input",
    )


def refers_to_inputs(partial: Any, inputs: Sequence[Vector]) -> bool:
    """Return whether the partial result of a map function shares memory with the inputs."""
    input_spans = [(_address(x), x.data.nbytes) for x in inputs]
    return any(
        span_start is not None and span_start <= address < span_start + span_bytes
        for address in _addresses(partial)
        for span_start, span_bytes in input_spans
    )


def described(result: Any) -> str:
    """Describe a method's result for a message."""
    if isinstance(result, Vector):
        return "Vector"
    facts = [str(getattr(result, fact)) for fact in ("dtype", "device") if hasattr(result, fact)]
    if hasattr(result, "shape"):
        facts.append(f"of shape {tuple(result.shape)}")
    return ", ".join([type(result).__name__, *facts])


def _addresses(partial: Any) -> Iterator[int]:
    if isinstance(partial, (tuple, list)):
        for part in partial:
            yield from _addresses(part)
    elif (address := _address(partial)) is not None:
        yield address


def _address(values: Any) -> int | None:
    """Return the address of the first element of a vector, an array, or a torch tensor.

    The result is None for other values. The function does not import torch.
    """
    if isinstance(values, Vector):
        values = values.data
    if isinstance(values, np.ndarray):
        return int(values.__array_interface__["data"][0])
    return int(values.data_ptr()) if hasattr(values, "data_ptr") else None


def _failure(
    merged: Merged, what: str, part: str = "", expected: str = "", found: str = ""
) -> Resumable:
    where = f"tensor {merged.name}" + (f", {part}" if part else "")
    problem = Problem(what, where, expected=expected, found=found, fix=_MEND)
    return Resumable(Reason.METHOD, str(problem))
