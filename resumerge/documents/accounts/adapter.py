"""The share of each module's change that an adapter keeps: a part of a run's document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from resumerge.engine.changes import UnitChanges, energies_of, energy_of_all
from resumerge.output_path import EXTRACTION


def describe_adapter(
    run: Mapping[str, Any], changes: Sequence[UnitChanges]
) -> dict[str, dict[str, Any] | None]:
    """Return the share of each change's energy that an adapter keeps.

    The share is under ``extraction`` or ``combination``; the other key has None. Both have None for
    a run that makes no adapter. The energy of a matrix is the sum of the squares of its elements.

    Args:
        run: the run's record in its ledger.
        changes: the measurements of the finished modules.
    """
    method = json.loads(run.get("fingerprint_parts") or "{}").get("method", {})
    adapter: dict[str, dict[str, Any] | None] = {"extraction": None, "combination": None}
    if "numpy" in method:  # recorded only by runs that make an adapter
        kind = "extraction" if method["name"] == EXTRACTION else "combination"
        adapter[kind] = _energies(changes)
    return adapter


def _energies(changes: Sequence[UnitChanges]) -> dict[str, Any]:
    energies = energies_of(changes)
    total, kept_energy = energy_of_all(energies)
    return {
        "kept": kept_energy / total if total else None,
        "modules": [
            {"module": name, "energy": energy, "kept": kept_energy / energy if energy else None}
            for name, (energy, kept_energy) in energies.items()
        ],
    }
