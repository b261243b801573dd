"""What a block costs by method, as measured: CPU time, and memory beside its inputs.

`benchmarks.memory` shows how well the memory is predicted, docs/benchmarks.md where the time is
from. Memory is what the process grows by for each thread, and so counts what the C library's
allocator loses between the pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

from resumerge.methods import METHODS


@dataclass(frozen=True)
class Cost:
    """Of one block.

    Args:
        milliseconds: of CPU for 2^20 elements of each input, all passes together.
        scratch: blocks of float32 beside the inputs as stored, and with torch in float32.
        per_input: as many more for each input.
    """

    milliseconds: float
    scratch: float
    per_input: float = 0.0


COMPILED = {
    "passthrough": Cost(0.7, 1.2),
    "linear": Cost(0.5, 1.2, 0.1),
    "task_arithmetic": Cost(0.5, 1.2, 0.1),
    "nearswap": Cost(0.5, 1.2),
    "trimmed_mean": Cost(0.75, 1.0, 0.2),
    "slerp": Cost(1.0, 1.5, 0.1),
    "nuslerp": Cost(1.0, 1.5, 0.1),
    "multislerp": Cost(1.0, 1.0, 0.24),
    "karcher": Cost(1.0, 1.0, 0.24),
    "model_stock": Cost(1.0, 1.3, 0.28),
    "ram": Cost(0.6, 0.5, 0.16),
    "ramplus_tl": Cost(1.1, 0.5, 0.16),
    "consensus_ta": Cost(0.5, 0.5, 0.16),
    "ties": Cost(1.5, 3.0, 0.25),
    "dare_linear": Cost(1.4, 0.4, 0.44),
    "dare_ties": Cost(1.5, 0.4, 0.44),
    "della": Cost(4.0, 1.8, 0.25),
    "della_linear": Cost(3.9, 1.8, 0.25),
    "breadcrumbs": Cost(2.9, 3.2, 0.45),
    "breadcrumbs_ties": Cost(3.2, 3.2, 0.45),
    "sce": Cost(4.0, 0.5, 0.28),
}
"""Of the compiled kernels."""

TORCH = {
    "copy": Cost(0.0, 0.0),
    "passthrough": Cost(1.0, 0.0),
    "linear": Cost(2.0, 0.0),
    "task_arithmetic": Cost(2.4, 0.0),
    "nearswap": Cost(1.7, 9.0),
    "trimmed_mean": Cost(3.8, 0.0, 6.0),
    "slerp": Cost(3.9, 15.0),
    "nuslerp": Cost(6.3, 16.0),
    "multislerp": Cost(5.8, 6.5, 3.4),
    "karcher": Cost(6.0, 6.5, 3.4),
    "model_stock": Cost(6.0, 1.0, 4.0),
    "ram": Cost(3.8, 8.4, 2.3),
    "ramplus_tl": Cost(9.4, 16.0, 2.8),
    "consensus_ta": Cost(5.7, 11.0, 0.5),
    "ties": Cost(9.8, 9.5, 0.9),
    "dare_linear": Cost(9.0, 25.0, 1.3),
    "dare_ties": Cost(10.6, 29.0, 1.1),
    "della": Cost(30.0, 23.0, 1.2),
    "della_linear": Cost(30.0, 24.0, 0.9),
    "breadcrumbs": Cost(14.0, 9.0, 0.9),
    "breadcrumbs_ties": Cost(16.3, 9.5, 0.9),
    "sce": Cost(10.3, 4.0, 5.3),
    "arcee_fusion": Cost(13.0, 20.0),
    "iso_c": Cost(200.0, 5.5, 0.2),
}

USUAL_MILLISECONDS = 6.0


def cost(method: str, compiled: bool) -> Cost:
    """Measured, or for a method of the user's what it declares."""
    if compiled:
        return COMPILED[method]
    return TORCH.get(method) or Cost(USUAL_MILLISECONDS, METHODS[method].scratch)
