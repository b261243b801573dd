"""The part of each model in the change of the output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from resumerge.engine.changes.units import UnitChanges, pairs


@dataclass(frozen=True, kw_only=True)
class ModelChange:
    """The part of one model in the change of the output, over all measured tensors.

    Args:
        reference: the model that changes are measured from.
        model: the model whose part in the change this is.
        tensors: the number of tensors that are merged from both models.
        equal: the number of these tensors that are bit for bit the same in both models.
        length: the estimated length of the model's task vector.
        differs: the estimated share of elements that differ between both models; None if there are
            no elements.
        cosine: the estimated cosine of the task vector and the output's change; None if one of
            these vectors is 0.
    """

    reference: str
    model: str
    tensors: int
    equal: int
    length: float
    differs: float | None
    cosine: float | None


def changes_of_models(changes: Sequence[UnitChanges]) -> list[ModelChange]:
    """Return the part of each model, in the order in which models first occur in units."""
    return [_of_model(*pair, changes) for pair in pairs(changes)]


def _of_model(reference: str, model: str, changes: Sequence[UnitChanges]) -> ModelChange:
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
    return ModelChange(
        reference=reference,
        model=model,
        tensors=tensors,
        equal=equal,
        length=math.sqrt(size),
        differs=ratio(differs, elements),
        cosine=cosine(along, size, change),
    )


def ratio(part: float, whole: float) -> float | None:
    """Return ``part / whole``; None if the whole is 0."""
    return part / whole if whole else None


def root_of_ratio(above: float, below: float) -> float | None:
    """Return the ratio of two lengths, given their squares; None if the second length is 0."""
    return math.sqrt(above / below) if below else None


def cosine(product: float, square: float, other: float) -> float | None:
    """Return the cosine of two vectors; None if one of them is 0.

    Args:
        product: the dot product of both vectors.
        square: the square of the first vector.
        other: the square of the second vector.
    """
    lengths = math.sqrt(square) * math.sqrt(other)
    return max(-1.0, min(1.0, product / lengths)) if lengths else None
