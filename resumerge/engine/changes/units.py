"""The changes of the numbers of each unit, and sums over all of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from resumerge.ledger import Ledger, UnitMeasurements


@dataclass(frozen=True)
class UnitChanges:
    """The measurements of one unit that is complete.

    Args:
        name: the unit's name.
        dtype: its type, by safetensors' name, or the scheme that it is quantised in.
        elements: the number of its elements.
        blocks: the number of its blocks.
        measurements: the sums over its blocks.
    """

    name: str
    dtype: str
    elements: int
    blocks: int
    measurements: UnitMeasurements

    @property
    def is_quantised(self) -> bool:
        """Whether its elements are written as codes with scales."""
        return bool(self.measurements.scheme)

    @property
    def reference(self) -> str:
        """The model that changes are counted from: the base, or the first one."""
        return self.measurements.models[0]

    @property
    def is_equal(self) -> bool:
        """Whether every element equals the reference's."""
        return self.measurements["unchanged"] == self.blocks

    @property
    def is_meant_to_change(self) -> bool:
        """Whether a model, or the unrounded result, differs from the reference."""
        models = self.measurements.of_models()
        return self.measurements["moved"] > 0 or any(
            sums["equal"] < self.blocks for _, sums in models
        )

    @property
    def inherited_infinities(self) -> int:
        """The number of infinities that come from the models, not from numbers out of range."""
        return int(max(0.0, self.measurements["infinities"] - self.measurements["overflows"]))

    @property
    def scale(self) -> float:
        """The factor from sums over measured elements to sums over all elements of the unit."""
        return self.elements / max(1.0, self.measurements["measured"])


def changes_of(ledger: Ledger, units: range | None = None) -> list[UnitChanges]:
    """Return the measurements of the units that are complete and were measured, in their order.

    Args:
        ledger: the run's ledger.
        units: the numbers of the units to return; None for all.
    """
    return [
        UnitChanges(
            row["name"],
            measurements.scheme or row["dtype"],
            measurements.elements or math.prod(json.loads(row["shape"])),
            row["blocks"],
            measurements,
        )
        for row, measurements in ledger.units.measurements()
        if units is None or row["number"] in units
    ]


def pairs(changes: Sequence[UnitChanges]) -> list[tuple[str, str]]:
    """Return each pair (reference, model) that was compared, in the order of the units."""
    compared = ((c.reference, model) for c in changes for model, _ in c.measurements.of_models())
    return [*dict.fromkeys(compared)]


def exact(changes: Sequence[UnitChanges], name: str) -> float:
    """Return a sum over all elements of all units."""
    return sum(unit.measurements[name] for unit in changes)


def estimated(changes: Sequence[UnitChanges], name: str) -> float:
    """Return a sum over the measured elements of all units, scaled to all elements."""
    return sum(unit.measurements[name] * unit.scale for unit in changes)
