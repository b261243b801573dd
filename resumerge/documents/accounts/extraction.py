"""What an adapter has of a model's change, module by module: a part of the document of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from resumerge.engine.changes import UnitChanges, energies_of, energy_of_all
from resumerge.output_path import EXTRACTION


def describe_extraction(
    run: Mapping[str, Any], changes: Sequence[UnitChanges]
) -> dict[str, Any] | None:
    """Return the share of the energy of each change that an adapter has; None of another run.

    The energy of a matrix is the sum of the squares of its elements.

    Args:
        run: the run's record in its ledger.
        changes: what was measured of the modules that are done.
    """
    parts = json.loads(run.get("fingerprint_parts") or "{}")
    if parts.get("method", {}).get("name") != EXTRACTION:
        return None
    energies = energies_of(changes)
    whole, kept = energy_of_all(energies)
    return {
        "kept": kept / whole if whole else None,
        "modules": [
            {"module": name, "energy": energy, "kept": own / energy if energy else None}
            for name, (energy, own) in energies.items()
        ],
    }
