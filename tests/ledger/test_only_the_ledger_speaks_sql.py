"""Other packages query the ledger by methods with names: there is no SQL outside ledger/."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "resumerge"

OTHER_DATABASES = {"remote/metadata_cache.py", "optimisation/study_tables.py"}
"""The modules of the cache of the Hub's responses, and of studies, whose tables are Optuna's."""

STATEMENT = re.compile(
    r"\s*(SELECT\s.+\sFROM\s|INSERT\s+(OR\s+\w+\s+)?INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s"
    r"|CREATE\s+(TABLE|INDEX|VIEW|TRIGGER)\s|ALTER\s+TABLE\s|DROP\s+TABLE\s|PRAGMA\s|WITH\s\w+\sAS)",
    re.DOTALL,
)
EXECUTE = {"execute", "executemany", "executescript"}


def sql_in(source: str) -> list[str]:
    """Return the places in a module's source that speak SQL, with line numbers."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if STATEMENT.match(node.value):
                found.append(f"{node.lineno}: {node.value[:40]!r}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, owner = node.func.attr, node.func.value
            on = ast.unparse(owner)
            private = re.search(r"ledger\._", f"{on}.{name}") is not None
            if name in EXECUTE or private or (on, name) == ("sqlite3", "connect"):
                found.append(f"{node.lineno}: {name}()")
    return found


def test_no_sql_outside_the_ledger() -> None:
    found = {
        str(path.relative_to(PACKAGE)): sql_in(path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.parent != PACKAGE / "ledger"
        and str(path.relative_to(PACKAGE)) not in OTHER_DATABASES
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        'rows = ledger.query("SELECT * FROM units WHERE shard = ?")',
        'f"UPDATE run SET {column} = ?"',
        'db.execute(sql)',
        'sqlite3.connect("ledger.db")',
        '"DELETE FROM mirrored"',
        "ledger._rows(sql)",
        "run.ledger._db.rows(sql)",
    ],
)  # fmt: skip
def test_sql_is_found(source: str) -> None:
    assert sql_in(source)


def test_errors_and_prose_are_no_sql() -> None:
    assert not sql_in('"""Select units from a shard."""\nexcept_ = sqlite3.DatabaseError')
