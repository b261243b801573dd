"""The SQL of a study's tables, whose schema is Optuna's.

A list of searches is read from the tables without Optuna, whose import takes a second.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

_ATTRIBUTES = "SELECT key, value_json FROM study_user_attributes"
_COUNTS = "SELECT state, count(*) FROM trials GROUP BY state"
_BEST = """SELECT number, value FROM trials JOIN trial_values USING (trial_id)
    WHERE state = 'COMPLETE' AND objective = 0 ORDER BY value {order}, number LIMIT 1"""


class StudyTables:
    """The tables of one study, open for reading.

    Its methods raise sqlite3.Error, or ValueError for an attribute that is not JSON.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the study, by name."""
        return {key: json.loads(text) for key, text in self._connection.execute(_ATTRIBUTES)}

    def counts(self) -> dict[str, int]:
        """Return the number of trials in each of Optuna's states, such as ``COMPLETE``."""
        return dict(self._connection.execute(_COUNTS).fetchall())

    def best(self, *, largest: bool) -> tuple[int, float] | None:
        """Return the number and the first value of the best trial; None without any.

        Args:
            largest: whether the largest value is the best. Of two equal trials the earlier is the
                best.
        """
        order = "DESC" if largest else "ASC"
        number_and_value: tuple[int, float] | None = self._connection.execute(
            _BEST.format(order=order)
        ).fetchone()
        return number_and_value


@contextmanager
def open_tables(path: Path) -> Iterator[StudyTables]:
    """Yield the tables of a study's file.

    Raises:
        sqlite3.Error: the file does not exist, or is not a database.
    """
    uri = f"file:{quote(str(path))}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        yield StudyTables(connection)
