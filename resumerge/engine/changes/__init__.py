"""Changes: the effect of a merge on the numbers of the output, from the measurements in its ledger.

The documents and displays call them the numbers of a run; ``--no-accounts`` turns them off.

`units.py` computes the changes of each unit, `models.py` the part of each model in these changes,
and `warnings.py` the warnings for the user. `card_section.py` writes the changes to the model card,
and `energies.py` computes the share of a change that an extracted adapter keeps.
Only the first elements of each block are measured (`kernels.measurements`), so lengths, products
and shares are estimates for the whole unit. The equality of tensors and the counts of numbers that
are not finite are exact: they cover all elements.
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
