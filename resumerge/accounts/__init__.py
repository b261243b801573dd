"""Accounts: the use of every tensor of the models, and the origins of every tensor of the output.

`tensors.py` has the account of the models, `origins.py` that of the output. Both take sources and
expressions, and know nothing of plans. The reason why a tensor is not used is not inferred here:
planning and the opening of adapters record it where they decide it (`sources/left_out.py`).
"""

from resumerge.accounts.origins import Origin, origins
from resumerge.accounts.tensors import Accounts, ModelAccount, account

__all__ = ["Accounts", "ModelAccount", "Origin", "account", "origins"]
