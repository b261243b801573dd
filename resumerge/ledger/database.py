"""sqlite-utils for a ledger, without its optional modules and plugins."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from threading import get_ident
from typing import Any

_OPTIONAL = {"pandas", "numpy", "pysqlite3", "sqlite_dump"}


@contextmanager
def _without_optional_modules() -> Iterator[None]:
    """Hide modules that sqlite-utils imports wherever they are installed; a ledger needs none.

    pandas with numpy takes 80 MB and 0.3 s of a process that is promised to need 64 MB; pysqlite3
    is a second SQLite. Other threads can import these modules meanwhile, and all code afterwards.
    """
    thread = get_ident()

    class Hidden(MetaPathFinder):
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name in _OPTIONAL and get_ident() == thread:
                raise ModuleNotFoundError(f"{name} is hidden from sqlite-utils", name=name)

    finder = Hidden()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


with _without_optional_modules():
    from sqlite_utils import Database
    from sqlite_utils.db import Table

__all__ = ["Database", "Table", "open_database"]


def open_database(connection: sqlite3.Connection) -> Database:
    """Return sqlite-utils' view of a connection, which stays as it is.

    Plugins that others have installed are not loaded: they would run in every merge.
    """
    return Database(connection, recursive_triggers=False, execute_plugins=False)
