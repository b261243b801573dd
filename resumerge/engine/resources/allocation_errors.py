"""Failed memory allocations. They stop a run, which can be resumed with more memory."""

from __future__ import annotations

from resumerge.errors import Reason, Resumable, refuse
from resumerge.host.memory import address_space_limit
from resumerge.sizes import show_size

LEAST_ADDRESS_SPACE = 1 << 28
"""Bytes of address space that Python and NumPy need."""

_OUT_OF_MEMORY_WORDS = (
    "can't allocate memory",
    "cannot allocate memory",
    "out of memory",
    "can't start new thread",
    "failed to map segment",
)
"""Parts of error messages of torch, of Python (no stack for a new thread) and of the dynamic
linker."""


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error is a failed memory allocation.

    Python, NumPy, torch on a CPU or GPU, the start of a thread, or the loading of a library may
    have failed to allocate.
    """
    message = str(error).lower()
    has_memory_words = any(words in message for words in _OUT_OF_MEMORY_WORDS)
    is_other_error = isinstance(error, (RuntimeError, ImportError)) and has_memory_words
    return isinstance(error, MemoryError) or is_other_error


def out_of_memory(error: Exception) -> Resumable:
    """Return the error for a failed memory allocation."""
    reason = str(error).strip().split("\n")[0] or type(error).__name__
    reason = "; ".join([reason, *getattr(error, "__notes__", ())])  # notes name the failed code
    return Resumable(
        Reason.MEMORY,
        f"A memory allocation failed ({reason}). Close other programs, or resume with "
        f"--threads 1 or a smaller --memory{_about_limit()}.",
    )


def check_address_space() -> None:
    """Check that libraries can be loaded: some of them end the process if memory is too small.

    Raises:
        InputError: the limit on the address space is too small.
    """
    limit = address_space_limit()
    if limit is not None and limit < LEAST_ADDRESS_SPACE:
        raise refuse(
            "The address space of this process is too small",
            expected=f"at least {show_size(LEAST_ADDRESS_SPACE)} for any merge",
            found=f"{show_size(limit)} (ulimit -v)",
            fix="raise or remove this limit; to limit the memory of a merge, use --memory",
        )


def _about_limit() -> str:
    limit = address_space_limit()
    return "" if limit is None else f", or raise the limit of {show_size(limit)} (ulimit -v)"
