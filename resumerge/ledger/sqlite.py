"""sqlite-utils, without the pandas and NumPy that it loads wherever they are installed.

It looks for them to know more column types, which a ledger does not have. On a machine like Colab,
where pandas is always there, that would cost every command half a second and 60 MB.
"""

from __future__ import annotations

import sys

_hidden = [name for name in ("numpy", "pandas") if name not in sys.modules]
for _name in _hidden:
    sys.modules[_name] = None  # type: ignore[assignment]
try:
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations
finally:
    for _name in _hidden:
        del sys.modules[_name]

__all__ = ["Database", "Migrations"]
