"""Accounts: the use of every tensor of the models, and the origins of every tensor of the output.

`tensors.py` computes the account of the models, and `origins.py` that of the output. For both,
`stored_tensors.py` finds the tensors in files to which the leaves of expressions belong. Both need
only sources and expressions, not a plan. The reason why a tensor is not used is not inferred here:
planning and the opening of adapters record the reason when they decide (`sources/left_out.py`).
"""

from resumerge.accounts.origins import Origin, origins
from resumerge.accounts.tensors import Accounts, ModelAccount, account

__all__ = ["Accounts", "ModelAccount", "Origin", "account", "origins"]
