"""Rows of a small ledger, and raw SQL for tests that look behind its methods or damage it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from waiting import HANGS_SECONDS

from resumerge.ledger import Ledger
from resumerge.ledger.validity import RECIPE_TEXT, text_digest

TIME = "2026-01-01T00:00:00+00:00"
PARTS = json.dumps({"recipe": "r", RECIPE_TEXT: text_digest("")})

RUN = {
    **{"id": "run", "created": TIME, "config_path": "recipe.yaml", "config_text": "", "host": None},
    **{"output": "out", "fingerprint": hashlib.sha256(PARTS.encode()).hexdigest()},
    **{"fingerprint_parts": PARTS, "options": "{}", "versions": "{}", "state": "running"},
}
SHARD = {
    **{"number": 0, "name": "model.safetensors", "nbytes": 24, "header_bytes": 8},
    **{"header_checksum": "0" * 32, "state": "open"},
}
UNIT = {
    **{"number": 0, "name": "weight", "shard": 0, "offset": 8, "nbytes": 16, "dtype": "F32"},
    **{"shape": "[4]", "block_elements": 4, "expression": "{}", "blocks": 1, "state": "pending"},
    **{"committed_blocks": 0},
}


def make(path: Path) -> Ledger:
    """Make a ledger of one tensor."""
    ledger = Ledger.create(path)
    ledger.begin(RUN, [], [SHARD], [UNIT])
    return ledger


def query(ledger: Path, sql: str) -> list[dict[str, Any]]:
    """Return the rows of a query.

    A process that ends locks its ledger while it moves all data into one file, with several syncs.
    """
    uri = f"{ledger.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=HANGS_SECONDS)) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(sql)]


def change(ledger: Path, sql: str, *rows: Sequence[Any]) -> None:
    """Execute a statement, once or for each of the rows of parameters."""
    with closing(sqlite3.connect(ledger)) as db, db:
        db.executemany(sql, rows or [()])
