"""The uses of a model's tensors (`uses`), and the reasons why a tensor is not used (`reasons`).

The names are those in ledgers and JSON. This room imports no other room, so that a status is shown
without delay.
"""

from resumerge.tensor_uses.reasons import HARMLESS, REASONS, UnusedReason
from resumerge.tensor_uses.uses import Use

__all__ = ["HARMLESS", "REASONS", "UnusedReason", "Use"]
