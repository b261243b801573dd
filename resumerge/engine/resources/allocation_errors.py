"""Failed allocations: no bug, but a reason to stop; the run can be resumed with more memory."""

from __future__ import annotations

from resumerge.errors import Reason, Resumable, refuse
from resumerge.host.memory import address_space_limit
from resumerge.sizes import show_size

LEAST_ADDRESS_SPACE = 1 << 28
"""Bytes that Python and NumPy need to be loaded."""

_SAID = (
    "can't allocate memory",
    "cannot allocate memory",
    "out of memory",
    "can't start new thread",
    "failed to map segment",
)
"""By torch, by Python of a thread that gets no stack, and by the loader of libraries."""


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error is a failed allocation.

    It may be Python's or NumPy's, torch's on a CPU or a GPU, a thread's, or that of a library.
    """
    said = str(error).lower()
    is_told = isinstance(error, (RuntimeError, ImportError)) and any(word in said for word in _SAID)
    return isinstance(error, MemoryError) or is_told


def out_of_memory(error: Exception) -> Resumable:
    """Return the error for a failed allocation."""
    reason = str(error).strip().split("\n")[0] or type(error).__name__
    reason = "; ".join([reason, *getattr(error, "__notes__", ())])  # notes say whose code failed
    return Resumable(
        Reason.MEMORY,
        f"A memory allocation failed ({reason}). Close other programs, or resume with "
        f"--threads 1 or a smaller --memory{_about_limit()}.",
    )


def check_address_space() -> None:
    """Check that the libraries can be loaded: some of them end the process if they cannot.

    Raises:
        InputError: the limit of the address space is too small.
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
