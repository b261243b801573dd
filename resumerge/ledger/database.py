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
    """Hide the optional modules that sqlite-utils imports if they are installed.

    A ledger does not need them. pandas and numpy would take 80 MB and 0.3 s in a process that is
    promised to use 64 MB, and pysqlite3 is a second copy of SQLite. The modules are hidden only
    inside this context, and only from the thread that entered it.
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
    """Wrap a connection in a sqlite-utils `Database`, without changing its settings.

    Installed plugins of sqlite-utils are not loaded, because they would run in every merge.
    """
    return Database(connection, recursive_triggers=False, execute_plugins=False)
