"""The tables of a new ledger, at once: what all migrations of `schema` make of an empty file.

Migrations are for ledgers that are older than the program; to go through all of them with
sqlite-utils would take a small merge a tenth of its time. A test compares the two.
"""

from __future__ import annotations

from datetime import UTC, datetime

from resumerge.ledger.database import Database

SET = "resumerge"
MIGRATIONS = ("m001_tables", "m002_budget_of_attempts", "m003_downloads", "m004_mirror")
"""Names of the migrations in `schema`, all of which the tables below have in them."""

_TABLES = """
CREATE TABLE _sqlite_migrations (id INTEGER PRIMARY KEY, migration_set TEXT, name TEXT,
    applied_at TEXT);
CREATE UNIQUE INDEX idx__sqlite_migrations_migration_set_name
    ON _sqlite_migrations (migration_set, name);
CREATE TABLE run (id TEXT PRIMARY KEY, created TEXT, config_path TEXT, config_text TEXT,
    output TEXT, fingerprint TEXT, fingerprint_parts TEXT, options TEXT, versions TEXT, host TEXT,
    state TEXT, mirror TEXT);
CREATE TABLE sources (number INTEGER PRIMARY KEY, model TEXT, kind TEXT, revision TEXT,
    folder TEXT, identity TEXT);
CREATE TABLE shards (number INTEGER PRIMARY KEY, name TEXT, nbytes INTEGER, header_bytes INTEGER,
    header_checksum TEXT, state TEXT, sealed_at TEXT);
CREATE TABLE companions (name TEXT PRIMARY KEY, nbytes INTEGER, checksum TEXT);
CREATE TABLE units (number INTEGER PRIMARY KEY, name TEXT,
    shard INTEGER REFERENCES shards(number), offset INTEGER, nbytes INTEGER, dtype TEXT,
    shape TEXT, block_elements INTEGER, expression TEXT, blocks INTEGER, state TEXT,
    committed_blocks INTEGER, block_hashes BLOB, checksum TEXT, attempt INTEGER, batch INTEGER,
    seconds REAL);
CREATE TABLE attempts (n INTEGER PRIMARY KEY, pid INTEGER, host TEXT, boot_id TEXT, started TEXT,
    ended TEXT, last_seen TEXT, outcome TEXT, peak_rss INTEGER, batches INTEGER,
    batch_bytes INTEGER, bytes_committed INTEGER, units_committed INTEGER, seconds REAL,
    merging_seconds REAL, budget INTEGER);
CREATE TABLE events (id INTEGER PRIMARY KEY, at TEXT, attempt INTEGER, kind TEXT, data TEXT);
CREATE TABLE samples (id INTEGER PRIMARY KEY, at TEXT, attempt INTEGER, rss INTEGER,
    available INTEGER, budget INTEGER, batch_bytes INTEGER, bytes_done INTEGER);
CREATE TABLE downloads (path TEXT PRIMARY KEY, repo TEXT, name TEXT, nbytes INTEGER,
    inode INTEGER, at TEXT);
CREATE TABLE mirrored (name TEXT PRIMARY KEY, nbytes INTEGER, sha256 TEXT, at TEXT);
"""


def make_tables(db: Database) -> None:
    """Make the tables in an empty file, and note the migrations as applied."""
    with db.atomic():
        for statement in _TABLES.strip().split(";"):
            db.execute(statement)
        applied = str(datetime.now(UTC))
        rows = ({"migration_set": SET, "name": n, "applied_at": applied} for n in MIGRATIONS)
        db.table("_sqlite_migrations").insert_all(rows)


def is_newest(db: Database) -> bool:
    """Whether no migration is lacking."""
    if not list(db.query("SELECT 1 FROM sqlite_master WHERE name = '_sqlite_migrations'")):
        return False
    rows = db.query("SELECT name FROM _sqlite_migrations WHERE migration_set = ?", [SET])
    return set(MIGRATIONS) <= {row["name"] for row in rows}
