"""The accounts of runs, as data: `numbers.py` has what happened to the numbers."""

from resumerge.documents.accounts.numbers import NOT_MEASURED, describe_changes

__all__ = ["NOT_MEASURED", "describe_changes"]
