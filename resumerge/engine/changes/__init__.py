"""Changes: the effect of a merge on the numbers of the output, from the measurements in its ledger.

`units.py` has the changes of each unit, `models.py` the part of each model in them, `warnings.py`
the warnings about them. `card_section.py` writes them into the model card, and `energies.py` says
how much of a change an extracted adapter keeps.
Only the first elements of each block are measured (`kernels.measurements`), so lengths, products
and shares are estimates for the whole unit. Whether tensors are equal, and how many numbers are not
finite, is counted over all elements and exact.
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
