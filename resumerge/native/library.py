"""The compiled library, if the installation could compile it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from functools import cache
from typing import Any

KERNELS = "RESUMERGE_KERNELS"
"""Environment variable: ``torch`` disables the compiled kernels; ``baseline``, ``avx2`` or
``avx512`` selects those for such processors."""

INSTRUCTION_SETS = ("baseline", "avx2", "avx512")


@cache
def _library() -> ctypes.CDLL | None:
    spec = importlib.util.find_spec("resumerge.native._kernels")
    if spec is None or spec.origin is None:
        return None
    try:
        return ctypes.CDLL(spec.origin)
    except OSError:  # compiled for another machine
        return None


def instruction_sets() -> tuple[str, ...]:
    """The sets of kernels that this processor can run, the fastest last; empty without any."""
    library = _library()
    return INSTRUCTION_SETS[: library.resumerge_instruction_sets() + 1] if library else ()


def is_missing() -> bool:
    """Whether nothing was compiled, or not for this machine, and nobody asked for torch."""
    return _library() is None and os.environ.get(KERNELS) != "torch"


@cache
def instruction_set() -> str | None:
    """The set of kernels in use; None where torch computes."""
    wanted = os.environ.get(KERNELS, "")
    there = instruction_sets()
    if wanted == "torch" or not there:
        return None
    return wanted if wanted in there else there[-1]


@cache
def function(name: str) -> Any:
    """A compiled function; `ctypes` releases the interpreter's lock during a call."""
    return getattr(_library(), f"resumerge_{name}_{instruction_set()}")
