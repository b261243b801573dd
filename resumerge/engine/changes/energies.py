"""Energies: how much of a change (of a model, of several adapters) an adapter's matrices keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from resumerge.engine.changes.units import UnitChanges
from resumerge.printable import escaped
from resumerge.sizes import share

ROUNDING_SHARE = 1e-9
"""The share of an energy that may be lost by rounding alone."""


def energies_of(changes: Sequence[UnitChanges]) -> dict[str, tuple[float, float]]:
    """Return for each module, by name, the energy of its difference, and the energy that is kept.

    The energy of a matrix is the sum of the squares of its elements.
    """
    return {c.name: (c.measurements["intended"], c.measurements["change"]) for c in changes}


def energy_of_all(energies: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Return the energy of all modules together, and the energy that is kept."""
    energy, kept = (sum(pair[side] for pair in energies.values()) for side in (0, 1))
    return energy, kept


def kept_in_words(changes: Sequence[UnitChanges]) -> str:
    """Return a sentence with the share of the energy that is kept, and the least of any module."""
    energies = energies_of(changes)
    whole, kept = energy_of_all(energies)
    if whole - kept <= ROUNDING_SHARE * whole:
        return "the matrices have all of the change"
    least = min(energies, key=lambda name: energies[name][1] / (energies[name][0] or 1.0))
    return (
        f"the matrices have {share(kept, whole)} of the energy of the change; the least, "
        f"{share(energies[least][1], energies[least][0])}, in {least}"
    )


def adapter_section(ranks: Mapping[str, int], changes: Sequence[UnitChanges]) -> list[str]:
    """Return the lines of an adapter's card on its matrices: ranks, and shares of energy kept.

    Args:
        ranks: the rank of each module that has matrices, by its name.
        changes: the measurements of these modules; empty if they were not measured.
    """
    energies = energies_of(changes)
    lines = ["## Matrices", ""]
    if energies:
        whole, kept = energy_of_all(energies)
        kept_of_all = share(kept, whole)
        lines += [f"They have {kept_of_all} of the energy (sum of squares) of the change.", ""]
    lines += ["| module | rank | kept |", "| --- | ---: | ---: |"]
    for module, rank in ranks.items():
        kept_share = share(*energies[module][::-1]) if module in energies else ""
        lines.append(f"| {escaped(module)} | {rank} | {kept_share} |")
    return [*lines, ""]
