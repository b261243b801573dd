"""Creates the declared tables, and adds what an older ledger lacks of them."""

from __future__ import annotations

import sqlite3

from resumerge.ledger.tables import TABLES, Column, Table

_TYPES = {int: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}


def create_missing(connection: sqlite3.Connection) -> None:
    """Create the tables and columns that are declared and not in the file. Keeps what is there."""
    for name, table in TABLES.items():
        present = {row["name"] for row in connection.execute(f"PRAGMA table_info({name})")}
        if not present:
            connection.execute(f"CREATE TABLE {name} ({', '.join(_definitions(table))})")
            continue
        for column in table.columns:
            if column.name not in present:
                connection.execute(f"ALTER TABLE {name} ADD COLUMN {_definition(column)}")


def _definitions(table: Table) -> list[str]:
    first, *others = table.columns
    return [f"{_definition(first)} PRIMARY KEY", *map(_definition, others)]


def _definition(column: Column) -> str:
    words = f'"{column.name}" {_TYPES[column.type]}'
    if column.references:
        key = TABLES[column.references].columns[0].name
        words += f' REFERENCES "{column.references}"("{key}")'
    return words
