"""The numbers of a merge, and how they changed: a part of the documents of plans and runs.

Values under ``exact`` are counted over all elements. Values under ``estimate`` are measured on some
elements of each block, and scaled to all elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from resumerge.engine.changes import UnitChanges, estimated, exact, warnings_of
from resumerge.engine.changes.models import (
    ModelChange,
    changes_of_models,
    cosine,
    ratio,
    root_of_ratio,
)

NOT_MEASURED: dict[str, Any] = {"numbers": None, "changes": [], "warnings": []}
"""The part of the document for a plan, and for a run without measurements."""


def describe_changes(changes: Sequence[UnitChanges], *, every: bool = False) -> dict[str, Any]:
    """Return the changes to the numbers of all tensors together, and the warnings about them.

    Args:
        changes: the measurements of all units.
        every: whether every tensor is listed; otherwise none is.
    """
    return {
        "numbers": _numbers(changes) if changes else None,
        "changes": [_of_unit(unit) for unit in changes] if every else [],
        "warnings": warnings_of(changes),
    }


def _numbers(changes: Sequence[UnitChanges]) -> dict[str, Any]:
    intended_square, change = estimated(changes, "intended"), estimated(changes, "change")
    moved_elements = estimated(changes, "moved")
    multi_model_units = [unit for unit in changes if len(unit.measurements.models) > 2]
    elements = sum(unit.elements for unit in changes)
    return {
        "tensors": len(changes),
        "elements": elements,
        "measured": int(exact(changes, "measured")),
        "exact": {
            "equal": sum(unit.is_equal for unit in changes),
            "nan": int(exact(changes, "nans")),
            "infinite": int(exact(changes, "infinities")),
            "overflow": int(exact(changes, "overflows")),
        },
        "estimate": {
            "intended": math.sqrt(intended_square),
            "change": math.sqrt(change),
            "survived": root_of_ratio(change, intended_square),
            "moved": ratio(moved_elements, elements),
            "lost": ratio(estimated(changes, "lost"), moved_elements),
            "conflicts": ratio(
                estimated(multi_model_units, "conflicts"),
                sum(unit.elements for unit in multi_model_units),
            ),
        },
        "models": [_of_model(change) for change in changes_of_models(changes)],
    }


def _of_model(change: ModelChange) -> dict[str, Any]:
    return {
        "model": change.model,
        "reference": change.reference,
        "tensors": change.tensors,
        "exact": {"equal": change.equal},
        "estimate": {
            "length": change.length,
            "differs": change.differs,
            "cosine": change.cosine,
        },
    }


def _of_unit(unit: UnitChanges) -> dict[str, Any]:
    measurements = unit.measurements
    measured_elements = measurements["measured"]
    return {
        "name": unit.name,
        "reference": unit.reference,
        "elements": unit.elements,
        "measured": int(measured_elements),
        "exact": {
            "equal": unit.is_equal,
            "nan": int(measurements["nans"]),
            "infinite": int(measurements["infinities"]),
            "overflow": int(measurements["overflows"]),
        },
        "estimate": {
            "intended": math.sqrt(measurements["intended"] * unit.scale),
            "change": math.sqrt(measurements["change"] * unit.scale),
            "survived": root_of_ratio(measurements["change"], measurements["intended"]),
            "moved": ratio(measurements["moved"], measured_elements),
            "lost": ratio(measurements["lost"], measurements["moved"]),
            "conflicts": ratio(measurements["conflicts"], measured_elements)
            if len(measurements.models) > 2
            else None,
        },
        "models": [
            {
                "model": model,
                "exact": {"equal": sums["equal"] == unit.blocks},
                "estimate": {
                    "length": math.sqrt(sums["size"] * unit.scale),
                    "differs": ratio(sums["differs"], measured_elements),
                    "cosine": cosine(sums["along"], sums["size"], measurements["change"]),
                },
            }
            for model, sums in measurements.of_models()
        ],
    }
