"""What becomes of a tensor of a model: its uses, and the reasons why it has none.

The names are those in ledgers and JSON. Imports nothing, so that a status is shown at once.
"""

from resumerge.tensor_uses.reasons import HARMLESS, REASONS, UnusedReason
from resumerge.tensor_uses.uses import Use

__all__ = ["HARMLESS", "REASONS", "UnusedReason", "Use"]
