"""Strips: a row for each kind of tensor, with a strip for each model and a mark for each layer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from resumerge.engine.changes import UnitChanges, pairs
from resumerge.layout.names import split

MOST_KINDS = 16
"""The most kinds of tensors that are drawn."""

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


@dataclass(frozen=True)
class Mark:
    """One layer of a strip: its column, its strength from 0 to 1, and its tooltip."""

    column: int
    strength: float
    label: str


@dataclass(frozen=True)
class Strips:
    """The strips of a run.

    Args:
        layers: the number of columns of a strip: the layers of the stack.
        heads: the headings of the strips in a row: the models, then the lost changes.
        rows: the strips of each kind of tensor, by its name.
    """

    layers: int
    heads: list[str]
    rows: Mapping[str, list[list[Mark]]]


def strips_of(changes: Sequence[UnitChanges]) -> Strips | None:
    """Return the share of the change that each model explains, by layer and kind of tensor.

    Args:
        changes: the measurements of all units.

    Returns:
        The strips; None if no unit is in a layer.
    """
    placed_units = [(split(unit.name), unit) for unit in changes]
    stacks = [location.stack for location, _ in placed_units if location is not None]
    if not stacks:
        return None
    stack = max(dict.fromkeys(stacks), key=stacks.count)
    kinds: dict[str, list[tuple[int, UnitChanges]]] = {}
    for location, unit in placed_units:
        if location is not None and location.stack == stack:
            kind = _NUMBER.sub("*", location.rest).removesuffix(".weight")
            kinds.setdefault(kind, []).append((location.index, unit))
    models = [*dict.fromkeys(model for _, model in pairs(changes))]
    rows = {
        kind: [*([*_cosines(units, model)] for model in models), [*_losses(units)]]
        for kind, units in [*kinds.items()][:MOST_KINDS]
    }
    layers = 1 + max(index for units in kinds.values() for index, _ in units)
    return Strips(layers, [*models, "lost to rounding"], rows)


def _cosines(units: Sequence[tuple[int, UnitChanges]], model: str) -> Iterator[Mark]:
    for column, unit in units:
        for name, sums in unit.measurements.of_models():
            product_of_lengths = (sums["size"] * unit.measurements["change"]) ** 0.5
            if name == model and product_of_lengths:
                cosine = max(-1.0, min(1.0, sums["along"] / product_of_lengths))
                yield Mark(column, max(0.0, cosine), f"{unit.name}: cosine {cosine:.2f}")


def _losses(units: Sequence[tuple[int, UnitChanges]]) -> Iterator[Mark]:
    for column, unit in units:
        if unit.measurements["moved"]:
            lost_share = unit.measurements["lost"] / unit.measurements["moved"]
            yield Mark(
                column,
                lost_share,
                f"{unit.name}: {lost_share:.1%} of the elements to change did not",
            )
