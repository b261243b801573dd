"""Promise: sqlite-utils brings no library or plugin along, and makes no table of its own accord."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from ledger_rows import change, make, query

from resumerge.ledger import Ledger

pytestmark = pytest.mark.cold_start

OPTIONAL = ("pandas", "numpy", "pysqlite3", "sqlite_dump")

HIDDEN_HERE_ALONE = """
import threading
from resumerge.ledger.database import _without_optional_modules
def elsewhere():
    import pandas
with _without_optional_modules():
    try:
        import pandas
        print("not hidden")
    except ModuleNotFoundError:
        pass
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Make a folder with a plugin and modules of these names, which print when imported."""
    for name in (*OPTIONAL, "stranger"):
        (tmp_path / f"{name}.py").write_text(f"print('{name} is imported')\n")
    (tmp_path / "pandas.py").write_text("print('pandas is imported')\nTimestamp = dict\n")
    plugin = tmp_path / "stranger-1.0.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (plugin / "entry_points.txt").write_text("[sqlite_utils]\nstranger = stranger\n")
    return tmp_path


def said(installed: Path, *words: str) -> list[str]:
    """Run a Python with these modules, and return the lines about imports and of an error."""
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=installed,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    return [line for line in ended.stdout.splitlines() if line.endswith("imported")] + (
        [] if ended.returncode == 0 else ended.stderr.splitlines()
    )


def test_a_ledger_imports_no_library_that_it_does_not_need(installed: Path) -> None:
    make(installed / "ledger.db").close()
    use = "from pathlib import Path; from resumerge.ledger import Ledger; "
    use += "ledger = Ledger(Path('ledger.db')); ledger.events.add('x'); ledger.units.all()"
    assert said(installed, "-c", use) == []


def test_status_imports_none_either(installed: Path) -> None:
    (installed / "state/run").mkdir(parents=True)
    make(installed / "state/run/ledger.db").close()
    assert said(installed, "-m", "resumerge", "status", "--json", "--state-dir", "state") == []


def test_they_are_imported_afterwards_by_whoever_wants_them(installed: Path) -> None:
    after = f"import resumerge.ledger, {', '.join(OPTIONAL)}; pandas.Timestamp"
    assert said(installed, "-c", after) == [f"{name} is imported" for name in OPTIONAL]


def test_what_is_imported_before_stays(installed: Path) -> None:
    before = "import pandas, sys, resumerge.ledger; assert sys.modules['pandas'] is pandas"
    assert said(installed, "-c", before) == ["pandas is imported"]


def test_other_threads_import_them_meanwhile(installed: Path) -> None:
    assert said(installed, "-c", HIDDEN_HERE_ALONE) == ["pandas is imported"]


def test_rows_of_a_table_that_is_missing_are_refused(tmp_path: Path) -> None:
    """sqlite-utils would make the table, with columns that it guesses from the row."""
    path = tmp_path / "ledger.db"
    make(path).close()
    change(path, "DROP TABLE events")
    with closing(Ledger(path)) as ledger:
        with pytest.raises(sqlite3.OperationalError, match="no such table: events"):
            ledger.events.add("happened")
        with pytest.raises(sqlite3.OperationalError, match="no such table: events"):
            ledger.fill({"events": [{"at": "now"}]})
    assert query(path, "SELECT name FROM sqlite_master WHERE name = 'events'") == []


def test_a_column_that_is_missing_is_not_added(tmp_path: Path) -> None:
    with closing(make(tmp_path / "ledger.db")) as ledger:
        with pytest.raises(sqlite3.OperationalError, match="moon"):
            ledger.attempts.start({"pid": 1, "host": "here", "moon": 1})
        assert ledger.attempts.all() == []
