"""The changes of the numbers of each unit, and their sums over several units."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from resumerge.ledger import Ledger, UnitMeasurements


@dataclass(frozen=True)
class UnitChanges:
    """The measurements of one complete unit.

    Args:
        name: the unit's name in the plan; in a sweep, it begins with the variant's folder.
        dtype: the unit's type by safetensors' name, or its quantisation scheme.
        elements: the number of elements; some measurements cover only a part of them.
        blocks: the number of blocks, all of which are committed and measured.
        measurements: the sums over all blocks; `exact` and `estimated` add them over units.
    """

    name: str
    dtype: str
    elements: int
    blocks: int
    measurements: UnitMeasurements

    @property
    def is_quantised(self) -> bool:
        """Whether the unit's elements are written as codes with scales."""
        return bool(self.measurements.scheme)

    @property
    def reference(self) -> str:
        """The model that changes are measured from: the base, or else the first model."""
        return self.measurements.models[0]

    @property
    def is_equal(self) -> bool:
        """Whether every element equals the element of the reference."""
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
        """The number of infinities that come from the models, not from overflows."""
        return int(max(0.0, self.measurements["infinities"] - self.measurements["overflows"]))

    @property
    def scale(self) -> float:
        """The factor that scales sums over measured elements to all elements of the unit."""
        return self.elements / max(1.0, self.measurements["measured"])


def changes_of(ledger: Ledger, units: range | None = None) -> list[UnitChanges]:
    """Return the measurements of complete units, in the order of the plan.

    Units that were not measured are omitted.

    Args:
        ledger: the ledger of a run, which need not be finished.
        units: the numbers of the units to return; None for all units.
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
    """Return each compared pair (reference, model) once, in the order of the units."""
    compared_pairs = (
        (c.reference, model) for c in changes for model, _ in c.measurements.of_models()
    )
    return [*dict.fromkeys(compared_pairs)]


def exact(changes: Sequence[UnitChanges], name: str) -> float:
    """Return the sum of an exact measurement over all elements of these units.

    Args:
        changes: the units whose measurements are added.
        name: the name of the measurement in `UNIT_SUMS`.
    """
    return sum(unit.measurements[name] for unit in changes)


def estimated(changes: Sequence[UnitChanges], name: str) -> float:
    """Return the sum of a measurement over these units, scaled to all of their elements.

    Args:
        changes: the units whose measurements are scaled and added.
        name: the name of the measurement in `UNIT_SUMS`.
    """
    return sum(unit.measurements[name] * unit.scale for unit in changes)
