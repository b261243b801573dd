"""The schema of a ledger: its creation, completion and check.

Anybody may have changed the file. A foreign trigger, constraint or index would run when the ledger
is written, and a column with another declaration could hold other types of values. Such a schema is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from resumerge.ledger.database import Database
from resumerge.ledger.tables import TABLES
from resumerge.ledger.validity import InvalidLedger

Missing = Mapping[str, Sequence[str]]
"""The missing columns of a ledger, by table; all columns of a table if the table is missing."""

VIEWS = {
    "progress": (
        "CREATE VIEW progress AS SELECT at, attempt, bytes_done, total.nbytes AS bytes_total, "
        "round(100.0 * bytes_done / total.nbytes, 1) AS percent, "
        "rss, budget, batch_bytes FROM samples, (SELECT sum(nbytes) AS nbytes FROM units) AS total"
    )
}
"""Views for people who open the file with other programs. This program does not read them.

The SQL must stay exactly the same, without the quotes that sqlite-utils would add: older versions
compare it with their own text.
"""

_TYPES = {int: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}


def check_schema(db: Database) -> Missing:
    """Check that the schema is one that `create_missing` made in this version or an older one.

    Additional tables and columns are accepted if they compute and constrain nothing. The only
    accepted views are those in `VIEWS`.

    Returns:
        the missing columns. A column that cannot be null is missing only if its whole table is.

    Raises:
        InvalidLedger: the schema is not a ledger's.
    """
    missing_columns = {
        name: [column.name for column in table.columns] for name, table in TABLES.items()
    }
    try:
        schema_rows = db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    except UnicodeDecodeError:  # SQLite's message repeats damaged text
        raise InvalidLedger("its schema is not text") from None
    for kind, raw_name, sql in schema_rows:
        if kind == "index" and sql is None:
            continue  # the index of a primary key has no SQL
        if kind == "view" and sql == VIEWS.get(raw_name):
            continue
        name, table = str(raw_name), _TABLE.fullmatch(str(sql))
        if kind != "table" or table is None:
            raise InvalidLedger(
                f"it has the {kind} {name[:60]!r}, which does not belong in a ledger"
            )
        if name.lower() in TABLES:
            if name.lower() != name:  # the same table for SQLite, but another one for sqlite-utils
                raise InvalidLedger(f"it has the table {name!r}, which is {name.lower()!r} here")
            missing_columns[name] = _missing_columns(name, table["columns"].split(","))
    return missing_columns


def create_missing(db: Database) -> None:
    """Create the declared tables, columns and views that the file lacks.

    Raises:
        InvalidLedger: the file's schema is not a ledger's.
    """
    for name, missing_columns in check_schema(db).items():
        columns = TABLES[name].columns
        if lacks_table(name, missing_columns):
            db.create_table(
                name,
                {column.name: column.type for column in columns},
                pk=columns[0].name,
                foreign_keys=[(c.name, c.references) for c in columns if c.references],
            )
            continue
        for column in columns:
            if column.name in missing_columns:
                db.table(name).add_column(column.name, column.type)
    for name in VIEWS.keys() - {*db.table_names(), *db.view_names()}:
        db.execute(VIEWS[name])


def read_missing_as_null(db: Database, missing: Missing) -> None:
    """Make this connection read missing columns as null, without changing the file."""
    for table, columns in missing.items():
        if not columns:
            continue
        selected_columns = ", ".join(
            f'{"NULL AS " if column.name in columns else ""}"{column.name}"'
            for column in TABLES[table].columns
        )
        source_clause = "WHERE FALSE" if lacks_table(table, columns) else f"FROM main.{table}"
        db.execute(f"CREATE TEMP VIEW {table} AS SELECT {selected_columns} {source_clause}")


def lacks_table(table: str, missing_columns: Sequence[str]) -> bool:
    """Return whether all columns of a table are missing, which means the table is."""
    return len(missing_columns) == len(TABLES[table].columns)


def _missing_columns(table: str, definitions: Sequence[str]) -> list[str]:
    declared_definitions, existing_names = _definitions(table), set()
    for definition in map(str.strip, definitions):
        name = definition.split()[0].strip('"').lower()
        if definition != declared_definitions.get(name, definition):
            raise InvalidLedger(f"its {table}.{name} is declared as {definition[:100]!r}")
        existing_names.add(name)
    missing_columns = [
        column for column in TABLES[table].columns if column.name not in existing_names
    ]
    for column in missing_columns:
        if not column.accepts(None):
            raise InvalidLedger(f"its {table}.{column.name} is missing")
    return [column.name for column in missing_columns]


def _definitions(table: str) -> dict[str, str]:
    """Return the SQL that defines each column of a table, as SQLite stores it, by column."""
    definitions = {}
    for column in TABLES[table].columns:
        column_sql = f'"{column.name}" {_TYPES[column.type]}'
        if column is TABLES[table].columns[0]:
            column_sql += " PRIMARY KEY"
        if column.references:
            primary_key = TABLES[column.references].columns[0].name
            column_sql += f' REFERENCES "{column.references}"("{primary_key}")'
        definitions[column.name] = column_sql
    return definitions


_NAME = r'(?:"\w+"|\w+)'
_COLUMN = rf"{_NAME}(?: (?:TEXT|INTEGER|REAL|BLOB))?(?: PRIMARY KEY)?"
_COLUMN += rf"(?: REFERENCES {_NAME}\({_NAME}\))?"
_TABLE = re.compile(
    rf"CREATE TABLE {_NAME}\s*\(\s*(?P<columns>{_COLUMN}(?:\s*,\s*{_COLUMN})*)\s*\)", re.ASCII
)
"""The SQL of a table without any expression that SQLite could evaluate."""
