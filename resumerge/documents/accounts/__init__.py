"""The accounts of runs, as data.

`tensors.py` describes the uses of the models' tensors, `numbers.py` the changes of their numbers,
and `adapter.py` the energy that an adapter keeps.
"""

from resumerge.documents.accounts.numbers import NOT_MEASURED, describe_changes
from resumerge.documents.accounts.tensors import describe_accounts, describe_outputs

__all__ = ["NOT_MEASURED", "describe_accounts", "describe_changes", "describe_outputs"]
