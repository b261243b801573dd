"""Changes: the effect of a merge on the numbers of the output, from the measurements in its ledger.

`units.py` has it of each unit, `models.py` of each model, `warnings.py` what should worry;
`card_section.py` writes it for the model card, `energies.py` what an extracted adapter keeps. What
is measured of a unit are the
first elements of each block (`kernels.measurements`): lengths, products and shares are estimates
for the whole unit. That tensors are equal, and how many numbers are not finite, is exact: it is
told of all elements.
"""

from resumerge.engine.changes.card_section import card_section
from resumerge.engine.changes.energies import (
    adapter_section,
    energies_of,
    energy_of_all,
    kept_in_words,
)
from resumerge.engine.changes.units import UnitChanges, changes_of, estimated, exact, pairs
from resumerge.engine.changes.warnings import warnings_of

__all__ = [
    "UnitChanges",
    "adapter_section",
    "card_section",
    "changes_of",
    "energies_of",
    "energy_of_all",
    "estimated",
    "exact",
    "kept_in_words",
    "pairs",
    "warnings_of",
]
