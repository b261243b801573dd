"""Energies: the share of a change (of a model, of several adapters) that an adapter keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from resumerge.engine.changes.units import UnitChanges
from resumerge.printable import escaped
from resumerge.sizes import share

ROUNDING_SHARE = 1e-9
"""The largest share of an energy whose loss is explained by rounding."""


def energies_of(changes: Sequence[UnitChanges]) -> dict[str, tuple[float, float]]:
    """Return (energy of the difference, energy that the matrices keep) of each module, by name.

    The energy of a matrix is the sum of the squares of its elements.
    """
    return {c.name: (c.measurements["intended"], c.measurements["change"]) for c in changes}


def energy_of_all(energies: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Return the sums of both energies over all modules."""
    energy, kept_energy = (sum(pair[side] for pair in energies.values()) for side in (0, 1))
    return energy, kept_energy


def kept_in_words(changes: Sequence[UnitChanges]) -> str:
    """Return a sentence with the share of the energy that is kept, in total and at least."""
    energies = energies_of(changes)
    whole_energy, kept_energy = energy_of_all(energies)
    if whole_energy - kept_energy <= ROUNDING_SHARE * whole_energy:
        return "the matrices have all of the change"
    least_kept = min(energies, key=lambda name: energies[name][1] / (energies[name][0] or 1.0))
    return (
        f"the matrices have {share(kept_energy, whole_energy)} of the energy of the change; "
        f"the least, {share(energies[least_kept][1], energies[least_kept][0])}, in {least_kept}"
    )


def adapter_section(ranks: Mapping[str, int], changes: Sequence[UnitChanges]) -> list[str]:
    """Return the lines of an adapter's card on the ranks of its matrices and the energy they keep.

    Args:
        ranks: the rank of each module with matrices, by the module's name.
        changes: the measurements of these modules; empty if they were not measured.
    """
    energies = energies_of(changes)
    card_lines = ["## Matrices", ""]
    if energies:
        whole_energy, kept_energy = energy_of_all(energies)
        kept_of_all = share(kept_energy, whole_energy)
        card_lines += [f"They have {kept_of_all} of the energy (sum of squares) of the change.", ""]
    card_lines += ["| module | rank | kept |", "| --- | ---: | ---: |"]
    for module, rank in ranks.items():
        kept_share = share(*energies[module][::-1]) if module in energies else ""
        card_lines.append(f"| {escaped(module)} | {rank} | {kept_share} |")
    return [*card_lines, ""]
