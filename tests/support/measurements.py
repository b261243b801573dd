"""The measurements in a ledger, and their comparison with what NumPy computes from the files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from resumerge.kernels.measurements import measured_elements
from resumerge.ledger import LEDGER_FILE, Ledger, UnitMeasurements


def measurements(state: Path) -> dict[str, UnitMeasurements]:
    """Return the measurements in the only ledger of a state folder, by the unit's name."""
    [path] = state.glob(f"*/{LEDGER_FILE}")
    with closing(Ledger(path, read_only=True)) as ledger:
        return {row["name"]: found for row, found in ledger.units.measurements()}


def check(
    measured: UnitMeasurements,
    reference: Tensor,
    others: Sequence[Tensor],
    exact: Tensor,
    out: Tensor,
) -> None:
    """Compare the measurements of a whole tensor with float64 arithmetic.

    Args:
        measured: the measurements in the ledger.
        reference: the tensor that changes are counted from.
        others: those of the other models, in order.
        exact: the result, float32.
        out: the result as it was written.
    """
    x_0, x, y = _wide(reference), _wide(exact), _wide(out)
    unchanged = _wide(reference.to(out.dtype))
    deltas = [_wide(other) - x_0 for other in others]
    up, down = (np.any([d > 0 for d in deltas], 0), np.any([d < 0 for d in deltas], 0))
    seen = _measured(x.size, measured.blocks)
    expected = {
        "measured": seen.sum(),
        "intended": np.square(x - x_0)[seen].sum(),
        "change": np.square(y - unchanged)[seen].sum(),
        "moved": (x != x_0)[seen].sum(),
        "lost": ((x != x_0) & (y == unchanged))[seen].sum(),
        "conflicts": (up & down & seen).sum() if len(deltas) > 1 else 0,
    }
    for name, number in expected.items():
        assert np.isclose(measured[name], number, rtol=1e-5, atol=0), name
    assert (measured["unchanged"] == measured.blocks) == np.array_equal(y, unchanged)
    assert not any(measured[name] for name in ("nans", "infinities", "overflows"))
    for (name, sums), d in zip(measured.of_models(), deltas, strict=True):
        size, along = np.square(d[seen]).sum(), (d * (y - unchanged))[seen].sum()
        lengths = np.sqrt(size * expected["change"])
        assert np.isclose(sums["size"], size, rtol=1e-5, atol=0), name
        assert abs(sums["along"] - along) <= 1e-5 * lengths, name
        assert sums["differs"] == (d[seen] != 0).sum(), name
        assert (sums["equal"] == measured.blocks) == (not d.any()), name


def _measured(elements: int, blocks: int) -> np.ndarray:
    """Return which elements are measured, if all blocks but the last have one size."""
    block = -(-elements // blocks)
    return np.arange(elements) % block < measured_elements(block)


def _wide(tensor: Tensor) -> np.ndarray:
    found: np.ndarray = tensor.to(torch.float64).flatten().numpy()
    return found
