"""The numbers of a merge, and how they changed: a part of the documents of plans and runs.

What is under ``exact`` is told of all elements; what is under ``estimate`` is measured on some of
each block and scaled to all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from resumerge.engine.changes import UnitChanges, estimated, exact, pairs, warnings_of

NOT_MEASURED: dict[str, Any] = {"numbers": None, "changes": [], "warnings": []}
"""The part of a plan, and of a run of which nothing is known."""


def describe_changes(changes: Sequence[UnitChanges], *, every: bool = False) -> dict[str, Any]:
    """Return what happened to the numbers of all tensors together, and what should worry.

    Args:
        changes: the measurements of all units.
        every: whether every tensor is listed.
    """
    return {
        "numbers": _numbers(changes) if changes else None,
        "changes": [_of_unit(unit) for unit in changes] if every else [],
        "warnings": warnings_of(changes),
    }


def _numbers(changes: Sequence[UnitChanges]) -> dict[str, Any]:
    intended, change = estimated(changes, "intended"), estimated(changes, "change")
    moved = estimated(changes, "moved")
    of_several = [unit for unit in changes if len(unit.measurements.models) > 2]
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
            "intended": math.sqrt(intended),
            "change": math.sqrt(change),
            "survived": _root_of_ratio(change, intended),
            "moved": _ratio(moved, elements),
            "lost": _ratio(estimated(changes, "lost"), moved),
            "conflicts": _ratio(
                estimated(of_several, "conflicts"), sum(unit.elements for unit in of_several)
            ),
        },
        "models": [_of_model(*pair, changes) for pair in pairs(changes)],
    }


def _of_model(reference: str, model: str, changes: Sequence[UnitChanges]) -> dict[str, Any]:
    tensors = equal = elements = 0
    size = along = change = differs = 0.0
    for unit in changes:
        if unit.reference != reference:
            continue
        for name, sums in unit.measurements.of_models():
            if name != model:
                continue
            tensors += 1
            equal += sums["equal"] == unit.blocks
            elements += unit.elements
            size += sums["size"] * unit.scale
            along += sums["along"] * unit.scale
            differs += sums["differs"] * unit.scale
            change += unit.measurements["change"] * unit.scale
    return {
        "model": model,
        "reference": reference,
        "tensors": tensors,
        "exact": {"equal": equal},
        "estimate": {
            "length": math.sqrt(size),
            "differs": _ratio(differs, elements),
            "cosine": _cosine(along, size, change),
        },
    }


def _of_unit(unit: UnitChanges) -> dict[str, Any]:
    own = unit.measurements
    measured = own["measured"]
    return {
        "name": unit.name,
        "reference": unit.reference,
        "elements": unit.elements,
        "measured": int(measured),
        "exact": {
            "equal": unit.is_equal,
            "nan": int(own["nans"]),
            "infinite": int(own["infinities"]),
            "overflow": int(own["overflows"]),
        },
        "estimate": {
            "intended": math.sqrt(own["intended"] * unit.scale),
            "change": math.sqrt(own["change"] * unit.scale),
            "survived": _root_of_ratio(own["change"], own["intended"]),
            "moved": _ratio(own["moved"], measured),
            "lost": _ratio(own["lost"], own["moved"]),
            "conflicts": _ratio(own["conflicts"], measured) if len(own.models) > 2 else None,
        },
        "models": [
            {
                "model": model,
                "exact": {"equal": sums["equal"] == unit.blocks},
                "estimate": {
                    "length": math.sqrt(sums["size"] * unit.scale),
                    "differs": _ratio(sums["differs"], measured),
                    "cosine": _cosine(sums["along"], sums["size"], own["change"]),
                },
            }
            for model, sums in own.of_models()
        ],
    }


def _ratio(part: float, whole: float) -> float | None:
    """Return a part of a whole; None if there is nothing."""
    return part / whole if whole else None


def _root_of_ratio(above: float, below: float) -> float | None:
    """Return the ratio of two lengths, from their squares; None if there is nothing."""
    return math.sqrt(above / below) if below else None


def _cosine(product: float, square: float, other: float) -> float | None:
    """Return the cosine of two vectors, from their product and their squares; None if one is 0."""
    lengths = math.sqrt(square) * math.sqrt(other)
    return max(-1.0, min(1.0, product / lengths)) if lengths else None
