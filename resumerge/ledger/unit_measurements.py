"""The measurements of a unit: running sums over its blocks, as the ledger stores them."""

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
        models: the operands as text. Changes are measured from the first one.
        blocks: the number of committed blocks.
        sums: the sums over these blocks, added in block order: the values of `UNIT_SUMS`, then the
            values of `MODEL_SUMS` for each model after the first.
        scheme: the unit's quantisation scheme; empty if the unit is not quantised.
        elements: the number of elements of a quantised unit, otherwise 0.
    """

    models: tuple[str, ...]
    blocks: int
    sums: tuple[float, ...]
    scheme: str = ""
    elements: int = 0

    @classmethod
    def empty(cls, models: Sequence[str], scheme: str = "", elements: int = 0) -> UnitMeasurements:
        """Return the measurements of a unit before its first block, with all sums 0."""
        sum_count = len(UNIT_SUMS) + len(MODEL_SUMS) * (len(models) - 1)
        return cls(tuple(models), 0, (0.0,) * sum_count, scheme, elements)

    def plus(self, rows: Iterable[Sequence[float]]) -> UnitMeasurements:
        """Return measurements that include the next blocks, given the sums of each block."""
        sums, blocks = [*self.sums], self.blocks
        for row in rows:
            blocks += 1
            sums = [total + addend for total, addend in zip(sums, row, strict=True)]
        return replace(self, blocks=blocks, sums=tuple(sums))

    def __getitem__(self, name: str) -> float:
        """Return the sum with this name in `UNIT_SUMS`."""
        return self.sums[UNIT_SUMS.index(name)]

    def of_models(self) -> list[tuple[str, dict[str, float]]]:
        """Return (model, its sums by the names in `MODEL_SUMS`) for each model after the first."""
        sums_of_models, position = [], len(UNIT_SUMS)
        for model in self.models[1:]:
            sums_of_models.append(
                (model, dict(zip(MODEL_SUMS, self.sums[position : position + len(MODEL_SUMS)])))
            )
            position += len(MODEL_SUMS)
        return sums_of_models

    def as_json(self) -> str:
        """Return JSON from which `of_json` reads the same numbers, bit for bit."""
        facts = {"models": self.models, "blocks": self.blocks, "sums": self.sums}
        quantisation_facts = (
            {"scheme": self.scheme, "elements": self.elements} if self.scheme else {}
        )
        return json.dumps(facts | quantisation_facts)

    @classmethod
    def of_json(cls, text: str) -> UnitMeasurements:
        """Parse the JSON that `as_json` writes.

        Raises:
            ValueError: the text is not the JSON of valid measurements.
        """
        try:
            decoded = json.loads(text)
            measurements = cls(
                tuple(decoded["models"]),
                decoded["blocks"],
                tuple(decoded["sums"]),
                decoded.get("scheme", ""),
                decoded.get("elements", 0),
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"no measurements: {error}") from error
        models, sums = measurements.models, measurements.sums
        are_valid = (
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
        if not are_valid:
            raise ValueError("no measurements")
        return measurements


def _columns(sums: Sequence[float]) -> Iterator[Sequence[float]]:
    """Yield slices of the sums that cannot be negative."""
    first_model_sum = len(UNIT_SUMS)
    yield sums[:first_model_sum]
    for position, name in enumerate(MODEL_SUMS):
        if name != "along":
            yield sums[first_model_sum + position :: len(MODEL_SUMS)]


def are_measurements(value: Any) -> bool:
    """Return whether a value is the JSON of valid measurements, or null."""
    if value is None:
        return True
    try:
        return isinstance(value, str) and bool(UnitMeasurements.of_json(value))
    except ValueError:
        return False
