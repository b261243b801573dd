"""The tables of a ledger, as sqlite-utils migrations; a new one is `newest.py`'s, which see."""

from __future__ import annotations

import sqlite3

from resumerge.ledger.newest import SET
from resumerge.ledger.sqlite import Database, Migrations

migrations = Migrations(SET)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables of an older ledger, or of an empty file, to where `newest` has them."""
    migrations.apply(Database(connection))


@migrations()
def m001_tables(db: Database) -> None:
    """The first version of every table; docs/architecture.md says what each column means."""
    db.create_table(
        "run",
        {
            "id": str,
            "created": str,
            "config_path": str,
            "config_text": str,
            "output": str,
            "fingerprint": str,
            "fingerprint_parts": str,
            "options": str,
            "versions": str,
            "host": str,
            "state": str,
        },
        pk="id",
    )
    db.create_table(
        "sources",
        {"number": int, "model": str, "kind": str, "revision": str, "folder": str, "identity": str},
        pk="number",
    )
    db.create_table(
        "shards",
        {
            "number": int,
            "name": str,
            "nbytes": int,
            "header_bytes": int,
            "header_checksum": str,
            "state": str,
            "sealed_at": str,
        },
        pk="number",
    )
    db.create_table("companions", {"name": str, "nbytes": int, "checksum": str}, pk="name")
    db.create_table(
        "units",
        {
            "number": int,
            "name": str,
            "shard": int,
            "offset": int,
            "nbytes": int,
            "dtype": str,
            "shape": str,
            "block_elements": int,
            "expression": str,
            "blocks": int,
            "state": str,
            "committed_blocks": int,
            "block_hashes": bytes,
            "checksum": str,
            "attempt": int,
            "batch": int,
            "seconds": float,
        },
        pk="number",
        foreign_keys=[("shard", "shards", "number")],
    )
    db.create_table(
        "attempts",
        {
            "n": int,
            "pid": int,
            "host": str,
            "boot_id": str,
            "started": str,
            "ended": str,
            "last_seen": str,
            "outcome": str,
            "peak_rss": int,
            "batches": int,
            "batch_bytes": int,
            "bytes_committed": int,
            "units_committed": int,
            "seconds": float,
            "merging_seconds": float,
        },
        pk="n",
    )
    db.create_table(
        "events", {"id": int, "at": str, "attempt": int, "kind": str, "data": str}, pk="id"
    )
    db.create_table(
        "samples",
        {
            "id": int,
            "at": str,
            "attempt": int,
            "rss": int,
            "available": int,
            "budget": int,
            "batch_bytes": int,
            "bytes_done": int,
        },
        pk="id",
    )


@migrations()
def m002_budget_of_attempts(db: Database) -> None:
    """What an attempt may use is known from its start, before its first sample."""
    db.table("attempts").add_column("budget", int)


@migrations()
def m003_downloads(db: Database) -> None:
    """What the run brought into the Hub's cache, which it may remove again."""
    db.create_table(
        "downloads",
        {"path": str, "repo": str, "name": str, "nbytes": int, "inode": int, "at": str},
        pk="path",
    )


@migrations()
def m004_mirror(db: Database) -> None:
    """Where the run is mirrored, and which files are there, whole, with their SHA-256."""
    db.table("run").add_column("mirror", str)
    db.create_table("mirrored", {"name": str, "nbytes": int, "sha256": str, "at": str}, pk="name")
