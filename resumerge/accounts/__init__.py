"""Accounts: what became of every tensor of the models, and what each tensor of the output is of.

`tensors.py` has the account of the models, `origins.py` that of the output. Both know nothing of
plans: they are given sources and expressions. Why a tensor is not used is not found out here:
planning and the opening of adapters record it where they decide it (`sources/left_out.py`).
"""

from resumerge.accounts.origins import Origin, origins
from resumerge.accounts.tensors import Accounts, ModelAccount, account

__all__ = ["Accounts", "ModelAccount", "Origin", "account", "origins"]
