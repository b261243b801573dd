"""What a block costs by method, as measured: CPU time, and memory beside its inputs.

`benchmarks.memory` shows how well the memory is predicted, docs/benchmarks.md where the time is
from. Memory is what the process grows by for each thread, and so counts what the C library's
allocator loses between the pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

from resumerge.methods import METHODS


@dataclass(frozen=True)
class BlockCost:
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
    "passthrough": BlockCost(0.7, 1.2),
    "linear": BlockCost(0.5, 1.2, 0.1),
    "task_arithmetic": BlockCost(0.5, 1.2, 0.1),
    "nearswap": BlockCost(0.5, 1.2),
    "trimmed_mean": BlockCost(0.75, 1.0, 0.2),
    "slerp": BlockCost(1.0, 1.5, 0.1),
    "nuslerp": BlockCost(1.0, 1.5, 0.1),
    "multislerp": BlockCost(1.0, 1.0, 0.24),
    "karcher": BlockCost(1.0, 1.0, 0.24),
    "model_stock": BlockCost(1.0, 1.3, 0.28),
    "ram": BlockCost(0.6, 0.5, 0.16),
    "ramplus_tl": BlockCost(1.1, 0.5, 0.16),
    "consensus_ta": BlockCost(0.5, 0.5, 0.16),
    "ties": BlockCost(1.5, 3.0, 0.25),
    "dare_linear": BlockCost(1.4, 0.4, 0.44),
    "dare_ties": BlockCost(1.5, 0.4, 0.44),
    "della": BlockCost(4.0, 1.8, 0.25),
    "della_linear": BlockCost(3.9, 1.8, 0.25),
    "breadcrumbs": BlockCost(2.9, 3.2, 0.45),
    "breadcrumbs_ties": BlockCost(3.2, 3.2, 0.45),
    "sce": BlockCost(4.0, 0.5, 0.28),
}
"""Of the compiled kernels."""

TORCH = {
    "copy": BlockCost(0.0, 0.0),
    "passthrough": BlockCost(1.0, 0.0),
    "linear": BlockCost(2.0, 0.0),
    "task_arithmetic": BlockCost(2.4, 0.0),
    "nearswap": BlockCost(1.7, 9.0),
    "trimmed_mean": BlockCost(3.8, 0.0, 6.0),
    "slerp": BlockCost(3.9, 15.0),
    "nuslerp": BlockCost(6.3, 16.0),
    "multislerp": BlockCost(5.8, 6.5, 3.4),
    "karcher": BlockCost(6.0, 6.5, 3.4),
    "model_stock": BlockCost(6.0, 1.0, 4.0),
    "ram": BlockCost(3.8, 8.4, 2.3),
    "ramplus_tl": BlockCost(9.4, 16.0, 2.8),
    "consensus_ta": BlockCost(5.7, 11.0, 0.5),
    "ties": BlockCost(9.8, 9.5, 0.9),
    "dare_linear": BlockCost(9.0, 25.0, 1.3),
    "dare_ties": BlockCost(10.6, 29.0, 1.1),
    "della": BlockCost(30.0, 23.0, 1.2),
    "della_linear": BlockCost(30.0, 24.0, 0.9),
    "breadcrumbs": BlockCost(14.0, 9.0, 0.9),
    "breadcrumbs_ties": BlockCost(16.3, 9.5, 0.9),
    "sce": BlockCost(10.3, 4.0, 5.3),
    "arcee_fusion": BlockCost(13.0, 20.0),
    "iso_c": BlockCost(200.0, 5.5, 0.2),
}

USUAL_MILLISECONDS = 6.0


def cost(method: str, compiled: bool) -> BlockCost:
    """Measured, or for a method of the user's what it declares."""
    if compiled:
        return COMPILED[method]
    return TORCH.get(method) or BlockCost(USUAL_MILLISECONDS, METHODS[method].scratch)
