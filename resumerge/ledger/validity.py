"""The check of a ledger's values: each value by its column, then the agreement of rows.

SQLite's integrity check ignores values, and another program, a failing disk or an attacker may have
changed them. So every value that is read from a ledger is checked here before it is used.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from resumerge.digests import HASH_BYTES
from resumerge.ledger.tables import TABLES
from resumerge.ledger.validators import SOURCE, Validator
from resumerge.output_path import OutputPath, is_shard_name

RECIPE_TEXT = "recipe text"
"""The key of the fingerprint part that holds the `text_digest` of the recipe."""

_AT_ONCE = 1000
"""The number of rows that are checked together."""

_SHOWN = 60
"""The most characters of an invalid value that a message shows."""

Row = TypeVar("Row", bound=Mapping[str, Any])


class InvalidLedger(sqlite3.DatabaseError):
    """The error for a file that is not the ledger of a run, or contradicts itself."""


def text_digest(text: str) -> str:
    """Return the SHA-256 of a recipe's text, in hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def check_values(
    table: str, rows: Sequence[Mapping[str, Any]], validators: Mapping[str, Validator] | None = None
) -> None:
    """Check the values of rows, column by column. Equal values of a column are checked once.

    Args:
        table: the name of the table that the rows are from, which messages show.
        rows: the rows, which all have the same columns.
        validators: the validators by column; by default the declared ones.

    Raises:
        InvalidLedger: a value is not valid in its column. The error names the first such value.
    """
    if validators is None:
        present_columns = rows[0] if rows else {}
        validators = {c.name: c.accepts for c in TABLES[table].columns if c.name in present_columns}
    for column_name, accepts in validators.items():
        values = [row[column_name] for row in rows]
        try:
            distinct_values = [*dict(zip(zip(map(type, values), values), values)).values()]
        except TypeError:  # rows from JSON may contain lists and objects, which have no hash
            distinct_values = values
        for value in distinct_values:
            if not accepts(value):
                raise InvalidLedger(
                    f"its {table}.{column_name} has the invalid value {str(value)[:_SHOWN]!r}"
                )


def checked(
    table: str, rows: Iterable[Row], validators: Mapping[str, Validator] | None = None
) -> Iterator[Row]:
    """Yield rows after checking them by `check_values`, without holding all in memory."""
    row_iterator = iter(rows)
    while row_chunk := list(islice(row_iterator, _AT_ONCE)):
        check_values(table, row_chunk, validators)
        yield from row_chunk


def in_sequence(table: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows of a table. If `Table.first` is set, check that keys are consecutive.

    SQLite gives a new row the largest key plus one. Consecutive keys ensure that this number stays
    small enough to be accepted when the row is read again.

    Raises:
        InvalidLedger: the keys have a gap, or do not begin with `Table.first`.
    """
    key_column, first = TABLES[table].columns[0].name, TABLES[table].first
    for expected_key, row in enumerate(rows, first or 0):
        if first is not None and row[key_column] != expected_key:
            raise InvalidLedger(f"its {table}.{key_column} are not consecutive")
        yield row


def check_agreement(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], units: Iterable[Mapping[str, Any]]
) -> None:
    """Check that rows do not contradict each other. Their values and order are already checked.

    Args:
        tables: all rows of ``run``, ``sources``, ``shards``, ``mirrored`` and ``attempts``.
        units: all rows of ``units``.

    Raises:
        InvalidLedger: rows contradict each other; the error names the columns.
    """
    _check_sources(_check_run(tables["run"]), tables["sources"])
    shards = tables["shards"]
    _check_form(tables["run"][0]["output"], [row["name"] for row in shards])
    if len({row["name"] for row in shards}) < len(shards):
        raise InvalidLedger("its shards.name has the same name twice")
    end_offsets = [row["header_bytes"] for row in shards]
    for unit in units:
        if unit["shard"] >= len(shards):
            raise InvalidLedger(f"its units.shard refers to {unit['shard']}, which does not exist")
        if (unit["attempt"] or 0) > len(tables["attempts"]):
            raise InvalidLedger(
                f"its units.attempt refers to {unit['attempt']}, which does not exist"
            )
        _check_size(unit)
        if unit["offset"] != end_offsets[unit["shard"]]:
            raise _contradiction(unit, "offset")
        end_offsets[unit["shard"]] += unit["nbytes"]
        _check_progress(unit, sealed=shards[unit["shard"]]["state"] == "sealed")
    for shard, end_offset in zip(shards, end_offsets):
        if end_offset != shard["nbytes"]:
            raise InvalidLedger(f"its shards.nbytes of {shard['name']} is not the sum of its units")
    if tables["mirrored"] and tables["run"][0].get("mirror", "") is None:
        raise InvalidLedger("its run.mirror is missing, but mirrored has rows")
    shard_sizes = {row["name"]: row["nbytes"] for row in shards}
    for row in tables["mirrored"]:
        if shard_sizes.get(row["name"], row["nbytes"]) != row["nbytes"]:
            raise InvalidLedger(
                f"its mirrored.nbytes of {row['name']!r} differs from shards.nbytes"
            )


def _check_run(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Check that there is one run, and that its recipe matches its fingerprint.

    Returns:
        the parts of the fingerprint, by key.
    """
    if len(runs) != 1:
        raise InvalidLedger(f"its table run has {len(runs)} rows")
    fingerprint_parts = json.loads(runs[0]["fingerprint_parts"])
    digest = hashlib.sha256(json.dumps(fingerprint_parts, sort_keys=True).encode()).hexdigest()
    if digest != runs[0]["fingerprint"]:
        raise InvalidLedger("its run.fingerprint does not match run.fingerprint_parts")
    if fingerprint_parts.get(RECIPE_TEXT) != text_digest(runs[0]["config_text"]):
        raise InvalidLedger("its run.config_text does not match run.fingerprint_parts")
    return dict(fingerprint_parts)


def _check_form(output: str, shards: Sequence[str]) -> None:
    """Check that the shards' names fit the output, which is a single file or a folder."""
    out = OutputPath(Path(output))
    names_fit = shards == [out.path.name] if out.is_file else all(map(is_shard_name, shards))
    if not names_fit:
        raise InvalidLedger(f"its shards.name {', '.join(shards)[:_SHOWN]!r} do not fit run.output")


def _check_sources(parts: Mapping[str, Any], sources: Sequence[Mapping[str, Any]]) -> None:
    """Check that each source matches its identity, and each identity the fingerprint."""
    identities = {row["model"]: json.loads(row["identity"]) for row in sources}
    for row in sources:
        for column in ("model", "kind", "revision"):
            if identities[row["model"]].get(column) != row[column]:
                raise InvalidLedger(
                    f"its sources.{column} {row[column]!r} does not match sources.identity"
                )
    for key, part in parts.items():
        model = key.removeprefix(SOURCE)
        if key != model and identities.get(model) != part:
            raise InvalidLedger(
                f"its sources.identity of {model!r} does not match run.fingerprint_parts"
            )


def _check_size(unit: Mapping[str, Any]) -> None:
    from resumerge.tensors.dtypes import BITS, nbytes  # takes 0.1 s, too long for `status`

    element_count = math.prod(json.loads(unit["shape"]))
    if unit["dtype"] not in BITS or unit["nbytes"] != nbytes(unit["dtype"], element_count):
        raise _contradiction(unit, "nbytes")
    if unit["blocks"] != max(1, -(-element_count // unit["block_elements"])):
        raise _contradiction(unit, "blocks")


def _check_progress(unit: Mapping[str, Any], *, sealed: bool) -> None:
    block_hashes = unit["block_hashes"] or b""
    committed_blocks = unit["committed_blocks"]
    is_complete = committed_blocks == unit["blocks"]
    if committed_blocks > unit["blocks"] or len(block_hashes) != HASH_BYTES * committed_blocks:
        raise _contradiction(unit, "block_hashes")
    input_hashes = unit.get("input_hashes") or b""
    if len(input_hashes) % (HASH_BYTES * committed_blocks) if committed_blocks else input_hashes:
        raise _contradiction(unit, "input_hashes")
    if unit["checksum"] != (xxhash.xxh3_128_hexdigest(block_hashes) if is_complete else None):
        raise _contradiction(unit, "checksum")
    if unit["state"] != ("committed" if is_complete else "pending"):
        raise _contradiction(unit, "state")
    if sealed and not is_complete:
        raise InvalidLedger(f"{unit['name'][:_SHOWN]!r} is missing from a sealed shard")


def _contradiction(unit: Mapping[str, Any], column: str) -> InvalidLedger:
    return InvalidLedger(
        f"its units.{column} of {unit['name'][:_SHOWN]!r} does not agree with the other columns"
    )
