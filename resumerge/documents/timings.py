"""Seconds and rates of the tensors of a run, added up by layer and by kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from resumerge.layout.groups import LayerKey, kind_of, layer_key, layer_names

MOST_LAYERS = 240
MOST_KINDS = 16


@dataclass
class Timing:
    """The sums of a group of tensors.

    Args:
        nbytes: bytes of committed output.
        seconds: seconds of computing and writing, all threads together.
    """

    name: str
    tensors: int = 0
    nbytes: float = 0.0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """The bytes of output per second of one thread."""
        return self.nbytes / self.seconds if self.seconds else 0.0

    def add(self, other: Timing) -> None:
        """Add another group's sums to this one."""
        self.tensors += other.tensors
        self.nbytes += other.nbytes
        self.seconds += other.seconds


def by_layer(units: Iterable[Mapping[str, Any]]) -> list[Timing]:
    """Return one group for each layer, and for each tensor outside of layers, in model order.

    Args:
        units: rows of the ledger's table ``units``; name, nbytes, blocks, committed_blocks and
            seconds are read.
    """
    timing_by_layer: dict[LayerKey, Timing] = {}
    for unit in units:
        timing_by_layer.setdefault(layer_key(unit["name"]), Timing("")).add(_timing(unit))
    for key, name in (names := layer_names(timing_by_layer)).items():
        timing_by_layer[key].name = name
    return _at_most([timing_by_layer[key] for key in names], MOST_LAYERS, "layers")


def by_kind(units: Iterable[Mapping[str, Any]]) -> list[Timing]:
    """Return one group for each kind of tensor, over all layers and experts, longest time first."""
    timing_by_kind: dict[str, Timing] = {}
    for unit in units:
        name = kind_of(unit["name"])
        timing_by_kind.setdefault(name, Timing(name)).add(_timing(unit))
    longest_first = sorted(timing_by_kind.values(), key=lambda timing: -timing.seconds)
    return _at_most(longest_first, MOST_KINDS, "kinds")


def _timing(unit: Mapping[str, Any]) -> Timing:
    done = unit["nbytes"] * unit["committed_blocks"] / max(1, unit["blocks"])
    return Timing("", 1, done, unit["seconds"] or 0.0)


def _at_most(timings: list[Timing], most: int, what: str) -> list[Timing]:
    """Return at most `most` groups: the first ones, then one with the sums of the others."""
    if len(timings) <= most:
        return timings
    remainder = Timing(f"{len(timings) - most + 1} more {what}")
    for timing in timings[most - 1 :]:
        remainder.add(timing)
    return [*timings[: most - 1], remainder]
