"""Promise: docs/architecture/ledger.md names every column of every table, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from resumerge.ledger.tables import TABLES

PAGE = (Path(__file__).parents[2] / "docs/architecture/ledger.md").read_text(encoding="utf-8")
OTHER_WORDS = {"lora", "open", "sealed", "run.mirror", "--evict"}
"""Words in backticks in that table that are no columns of the row's own table."""


@pytest.mark.parametrize("table", TABLES)
def test_a_row_names_the_columns_of_its_table(table: str) -> None:
    [row] = re.findall(rf"^\| {table} \| (.*) \|$", PAGE, re.MULTILINE)
    named = set(re.findall(r"`([^`]+)`", row)) - OTHER_WORDS
    assert named == {column.name for column in TABLES[table].columns}
