"""The accounts of runs, as data.

`tensors.py` has the uses of the models' tensors, `numbers.py` the changes of their numbers.
"""

from resumerge.documents.accounts.numbers import NOT_MEASURED, describe_changes
from resumerge.documents.accounts.tensors import describe_accounts, describe_outputs

__all__ = ["NOT_MEASURED", "describe_accounts", "describe_changes", "describe_outputs"]
