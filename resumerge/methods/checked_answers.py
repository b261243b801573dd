"""Checks of the values that merge methods, including users', return while a merge is planned.

Without the checks, for example, the blocks of a method that returns -1 as the length of a row would
never be written.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resumerge.errors import ResumergeError, StopSignal, refuse
from resumerge.methods.base import KernelMethod, MergeMethod, TensorContext
from resumerge.methods.registry import METHODS
from resumerge.methods.user_code import raised

MEND = "fix the method: see docs/extending.md"


@dataclass(frozen=True)
class Answers:
    """The values that a method returns about one tensor during planning; see `MergeMethod`.

    Args:
        contradiction: a description of valid parameters, if the tensor's parameters contradict each
            other; else None.
        row_elements: the length of rows that must not be split between blocks; None without such
            rows.
        is_copy: whether the result is the single input, unchanged.
    """

    contradiction: str | None = None
    row_elements: int | None = None
    is_copy: bool = False


def ask(method: MergeMethod, tensor: TensorContext) -> Answers:
    """Return the checked answers of a method about a tensor; the defaults for an empty tensor.

    Raises:
        InputError: a returned value is invalid, or a method of the user fails.
    """
    if tensor.numel == 0:
        return Answers()
    input_count = len(tensor.per_model)
    expected_copy = (
        "True or False" if input_count == 1 else f"False, since {input_count} models are merged"
    )
    _answer(method, method.passes, tensor, _is_count, "a whole number above 0")
    _answer(method, method.statistics_bytes, tensor, _is_size, "a whole number, 0 or more")
    return Answers(
        _answer(method, method.validate, tensor, _is_text_or_none, "text, or None"),
        _answer(method, method.row_elements, tensor, _is_row, "a whole number above 0, or None"),
        _answer(
            method, method.is_copy, tensor, lambda f: f in (False, input_count == 1), expected_copy
        ),
    )


def is_users(method: str) -> bool:
    """Return whether a method comes from the user; else it is built into this package."""
    return method not in METHODS.built_in


def file_of(method: str) -> str | None:
    """Return the file that defines a method's class."""
    return sys.modules[type(METHODS[method]).__module__].__file__


def place_of_block(method: str) -> str:
    """Return the place of the code that computes a block: ``block() in mine.py, line 12``."""
    kind: Any = type(METHODS[method])
    function = inspect.unwrap(kind.compute if issubclass(kind, KernelMethod) else kind.block)
    file, line = Path(function.__code__.co_filename).name, function.__code__.co_firstlineno
    return f"{function.__name__}() in {file}, line {line}"


def _answer(
    method: MergeMethod,
    question: Callable[[TensorContext], Any],
    tensor: TensorContext,
    is_valid: Callable[[Any], bool],
    expected: str,
) -> Any:
    question_text = f"{question.__name__}() of tensor {tensor.name}"
    try:
        answer = question(tensor)
    except (ResumergeError, StopSignal):
        raise
    except BaseException as error:
        if not is_users(method.name):
            raise
        message = f"An error in your method {method.name!r}"
        raised_at = raised(error, file_of(method.name))
        raise refuse(message, where=question_text, found=raised_at, fix=MEND) from error
    if not is_valid(answer):
        message = f"The merge method {method.name!r} returned an invalid value"
        raise refuse(message, where=question_text, expected=expected, found=repr(answer), fix=MEND)
    return answer


def _is_text_or_none(answer: object) -> bool:
    return answer is None or isinstance(answer, str)


def _is_size(answer: object) -> bool:
    return isinstance(answer, int) and not isinstance(answer, bool) and answer >= 0


def _is_count(answer: object) -> bool:
    return _is_size(answer) and answer != 0


def _is_row(answer: object) -> bool:
    return answer is None or _is_count(answer)
