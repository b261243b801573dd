"""Changes: the effect of a merge on the numbers of the output, from the measurements in its ledger.

`units.py` has it of each unit, `warnings.py` what should worry. What is measured of a unit are the
first elements of each block (`kernels.measurements`): lengths, products and shares are estimates
for the whole unit. That tensors are equal, and how many numbers are not finite, is exact: it is
told of all elements.
"""

from resumerge.engine.changes.units import UnitChanges, changes_of, estimated, exact, pairs
from resumerge.engine.changes.warnings import warnings_of

__all__ = ["UnitChanges", "changes_of", "estimated", "exact", "pairs", "warnings_of"]
