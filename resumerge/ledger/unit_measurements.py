"""The measurements of a unit: running sums over its blocks, as the ledger keeps them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

UNIT_SUMS = (
    "measured",
    "intended",
    "change",
    "moved",
    "lost",
    "conflicts",
    "unchanged",
    "nans",
    "infinities",
    "overflows",
    "reference_not_finite",
)
"""The names of a unit's sums, in the order of `resumerge.kernels.measurements.measure`."""

MODEL_SUMS = ("size", "along", "differs", "equal", "not_finite")
"""The names of the sums for each model, in the same order."""

LONGEST_NAME, MOST_MODELS, LARGEST_SUM = 4096, 32768, 1e200


@dataclass(frozen=True)
class UnitMeasurements:
    """The measurements of a unit's committed blocks.

    Args:
        models: the operands as text; the first is the model that changes are counted from.
        blocks: the number of blocks.
        sums: the sums over these blocks, in their order: `UNIT_SUMS`, then `MODEL_SUMS` for each
            other model.
        scheme: the name of the scheme that the unit is quantised in; empty if it is plain.
        elements: the number of the unit's elements if it is quantised, otherwise 0.
    """

    models: tuple[str, ...]
    blocks: int
    sums: tuple[float, ...]
    scheme: str = ""
    elements: int = 0

    @classmethod
    def begun(cls, models: Sequence[str], scheme: str = "", elements: int = 0) -> UnitMeasurements:
        """Return the measurements of a unit made from these models, before its first block."""
        width = len(UNIT_SUMS) + len(MODEL_SUMS) * (len(models) - 1)
        return cls(tuple(models), 0, (0.0,) * width, scheme, elements)

    def plus(self, rows: Iterable[Sequence[float]]) -> UnitMeasurements:
        """Return the measurements with the sums of the next blocks, added one by one."""
        sums, blocks = [*self.sums], self.blocks
        for row in rows:
            blocks += 1
            sums = [total + more for total, more in zip(sums, row, strict=True)]
        return replace(self, blocks=blocks, sums=tuple(sums))

    def __getitem__(self, name: str) -> float:
        """Return a sum of the unit by its name in `UNIT_SUMS`."""
        return self.sums[UNIT_SUMS.index(name)]

    def of_models(self) -> list[tuple[str, dict[str, float]]]:
        """Return the sums of each model but the first, by the names in `MODEL_SUMS`."""
        sums_of_models, at = [], len(UNIT_SUMS)
        for model in self.models[1:]:
            sums_of_models.append(
                (model, dict(zip(MODEL_SUMS, self.sums[at : at + len(MODEL_SUMS)])))
            )
            at += len(MODEL_SUMS)
        return sums_of_models

    def as_json(self) -> str:
        """Return the measurements as JSON, from which each number is read again bit by bit."""
        facts = {"models": self.models, "blocks": self.blocks, "sums": self.sums}
        quantised = {"scheme": self.scheme, "elements": self.elements} if self.scheme else {}
        return json.dumps(facts | quantised)

    @classmethod
    def of_json(cls, text: str) -> UnitMeasurements:
        """Return the measurements that `as_json` has written.

        Raises:
            ValueError: they are no such measurements.
        """
        try:
            value = json.loads(text)
            measurements = cls(
                tuple(value["models"]),
                value["blocks"],
                tuple(value["sums"]),
                value.get("scheme", ""),
                value.get("elements", 0),
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"no measurements: {error}") from error
        models, sums = measurements.models, measurements.sums
        fits = (
            type(measurements.blocks) is int
            and measurements.blocks >= 0
            and 1 <= len(models) <= MOST_MODELS
            and all(isinstance(model, str) and len(model) <= LONGEST_NAME for model in models)
            and isinstance(measurements.scheme, str)
            and len(measurements.scheme) <= LONGEST_NAME
            and type(measurements.elements) is int
            and 0 <= measurements.elements < 1 << 63
            and len(sums) == len(UNIT_SUMS) + len(MODEL_SUMS) * (len(models) - 1)
            and all(type(number) is float and abs(number) <= LARGEST_SUM for number in sums)
            and all(min(column) >= 0.0 for column in _columns(sums) if column)
        )
        if not fits:
            raise ValueError("no measurements")
        return measurements


def _columns(sums: Sequence[float]) -> Iterator[Sequence[float]]:
    """Yield the sums that cannot be negative."""
    first = len(UNIT_SUMS)
    yield sums[:first]
    for place, name in enumerate(MODEL_SUMS):
        if name != "along":
            yield sums[first + place :: len(MODEL_SUMS)]


def are_measurements(value: Any) -> bool:
    """Return whether a value is the JSON of measurements, or null."""
    if value is None:
        return True
    try:
        return isinstance(value, str) and bool(UnitMeasurements.of_json(value))
    except ValueError:
        return False
