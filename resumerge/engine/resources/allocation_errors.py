"""Failed allocations: no bug, but a reason to stop; the run can be resumed with more memory."""

from __future__ import annotations

from resumerge.errors import Resumable

_TORCH_SAYS = ("can't allocate memory", "out of memory")


def is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed: Python's or NumPy's, or torch's on a CPU or a GPU."""
    torch_failed = isinstance(error, RuntimeError) and any(
        words in str(error) for words in _TORCH_SAYS
    )
    return isinstance(error, MemoryError) or torch_failed


def out_of_memory(error: Exception) -> Resumable:
    """The error for a failed allocation."""
    reason = str(error).strip().split("\n")[0] or type(error).__name__
    return Resumable(
        "memory",
        f"An allocation of memory failed ({reason}). Close other programs, or resume with "
        "--threads 1 or a smaller --memory.",
    )
