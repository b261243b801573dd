"""The tables of a ledger. A column is declared here, and nowhere else.

The declaration is used to create the tables (`schema_check`), to validate values that are read
(`validity`), to import a ledger from a mirror (`import_ledger`), and to copy results from another
machine's ledger (`units`). To add a column, add a line here. Its validator has to accept null,
because older ledgers lack the column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from resumerge.ledger.file_names import is_safe_name
from resumerge.ledger.unit_measurements import are_measurements
from resumerge.ledger.validators import (
    OF_TYPE,
    Validator,
    event_data,
    hashes,
    integer,
    like,
    mapping,
    names,
    options,
    or_null,
    parts_of_fingerprint,
    path,
    seconds,
    shape,
    source_identity,
    text,
    time,
    weights_name,
)
from resumerge.tensor_uses import UnusedReason, Use

STAYS: Final = None
"""The value of `Column.validator` for a column that another machine does not import."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: the name in SQL, which is also the key in a row that is read.
        type: ``int``, ``float``, ``str`` or ``bytes``.
        validator: a function that returns whether a value is valid, in a ledger of this machine or
            an untrusted one that is imported. `STAYS` for a column that is not imported.
        references: the table whose primary key the column holds.
        result: whether the column describes the bytes of a unit, whichever machine computed them.
            It is set from `UnitCommit.results`, copied if another machine computed the unit, and
            cleared when the unit has to be computed again.
        local: the validator of a column that is not imported. The default accepts every value of
            the column's type, and null.
    """

    name: str
    type: type[int] | type[float] | type[str] | type[bytes]
    validator: Validator | None
    references: str = ""
    result: bool = False
    local: Validator | None = None

    @property
    def accepts(self) -> Validator:
        """The validator of the column's values in a ledger of this machine."""
        return self.validator or self.local or OF_TYPE[self.type]


@dataclass(frozen=True)
class Table:
    """A table, whose first column is the primary key.

    Args:
        columns: every declared column; the table of an older ledger may lack some of them.
        required: whether an imported ledger has to contain the table.
        first: the key of the first row if keys are consecutive numbers, otherwise None.
    """

    columns: tuple[Column, ...]
    required: bool = False
    first: int | None = None

    @property
    def imported(self) -> dict[str, Validator]:
        """The validators of the columns that are imported on another machine, by name."""
        return {c.name: c.validator for c in self.columns if c.validator is not STAYS}


_XXH3, _SHA256 = like("[0-9a-f]{32}"), like("[0-9a-f]{64}")
_COUNT = or_null(integer())

_PIN = "[0-9a-f]{40}|[0-9a-f]{32}"  # a commit of the Hub, or a digest of ETags in a bucket
_REVISION = rf"{_PIN}|({_PIN}|None)\+({_PIN}|None)"  # a model with an adapter has one of each

TABLES: dict[str, Table] = {
    "run": Table(
        (
            Column("id", str, like("[A-Za-z0-9_-]{1,100}")),
            Column("created", str, time),
            Column("config_path", str, path),
            Column("config_text", str, text(1 << 24)),
            Column("output", str, path),
            Column("fingerprint", str, _SHA256),
            Column("fingerprint_parts", str, parts_of_fingerprint),
            Column("options", str, options),
            Column("versions", str, mapping),
            Column("host", str, or_null(text(300))),
            Column("state", str, like("planned|running|interrupted|failed|done")),
            Column("mirror", str, STAYS),  # the importing machine may use another URL
        ),
        required=True,
    ),
    "sources": Table(
        (
            Column("number", int, integer()),
            Column("model", str, path),
            Column("kind", str, like("local|hub|bucket|lora")),
            Column("revision", str, or_null(like(_REVISION))),
            Column("folder", str, path),
            Column("identity", str, source_identity),
            Column("stamps", str, STAYS, local=or_null(mapping)),
            Column("content", str, or_null(_XXH3)),
        ),
        required=True,
        first=0,
    ),
    "shards": Table(
        (
            Column("number", int, integer()),
            Column("name", str, weights_name),
            Column("nbytes", int, integer()),
            Column("header_bytes", int, integer()),
            Column("header_checksum", str, _XXH3),
            Column("copied", int, or_null(integer())),
            Column("state", str, like("open|sealed")),
            Column("sealed_at", str, or_null(time)),
        ),
        required=True,
        first=0,
    ),
    "units": Table(
        (
            Column("number", int, integer()),
            Column("name", str, text()),
            Column("shard", int, integer(), references="shards"),
            Column("offset", int, integer()),
            Column("nbytes", int, integer()),
            Column("dtype", str, like("[A-Z0-9_]{1,20}")),
            Column("shape", str, shape),
            Column("block_elements", int, integer(1)),
            Column("expression", str, mapping),
            Column("blocks", int, integer(1)),
            Column("state", str, like("pending|committed")),
            Column("committed_blocks", int, integer(), result=True),
            Column("block_hashes", bytes, hashes, result=True),
            Column("input_hashes", bytes, hashes, result=True),
            Column("checksum", str, or_null(_XXH3), result=True),
            Column("measurements", str, are_measurements, result=True),
            Column("attempt", int, _COUNT),
            Column("batch", int, _COUNT),
            Column("seconds", float, or_null(seconds)),
        ),
        required=True,
        first=0,
    ),
    "mirrored": Table(
        (
            Column("name", str, is_safe_name),
            Column("nbytes", int, integer()),
            Column("sha256", str, _SHA256),
            Column("at", str, time),
        ),
        required=True,
    ),
    "accounts": Table(
        (
            Column("number", int, integer()),
            Column("model", str, path),
            Column("use", str, or_null(like("|".join(use.slug for use in Use)))),
            Column("reason", str, or_null(like("|".join(reason.value for reason in UnusedReason)))),
            Column("tensors", int, integer()),
            Column("folded", str, or_null(names)),
            Column("names", str, or_null(names)),
        ),
        first=0,
    ),
    "attempts": Table(
        (
            Column("n", int, integer(1)),
            Column("pid", int, integer()),
            Column("host", str, text(300)),
            Column("boot_id", str, or_null(text(100))),
            Column("started", str, time),
            Column("ended", str, or_null(time)),
            Column("last_seen", str, time),
            Column("outcome", str, or_null(like("done|interrupted|error|oom|killed"))),
            Column("peak_rss", int, _COUNT),
            Column("batches", int, _COUNT),
            Column("batch_bytes", int, _COUNT),
            Column("bytes_committed", int, _COUNT),
            Column("units_committed", int, integer()),
            Column("seconds", float, or_null(seconds)),
            Column("merging_seconds", float, or_null(seconds)),
            Column("budget", int, _COUNT),
        ),
        first=1,
    ),
    "events": Table(
        (
            Column("id", int, integer()),
            Column("at", str, time),
            Column("attempt", int, _COUNT),
            Column("kind", str, like("[a-z0-9_]{1,100}")),
            Column("data", str, event_data),
        ),
        first=1,
    ),
    "samples": Table(
        (
            Column("id", int, integer()),
            Column("at", str, time),
            Column("attempt", int, _COUNT),
            Column("rss", int, integer()),
            Column("available", int, integer()),
            Column("budget", int, integer()),
            Column("batch_bytes", int, integer()),
            Column("bytes_done", int, integer()),
        ),
        first=1,
    ),
    "companions": Table(
        (
            Column("name", str, STAYS, local=is_safe_name),
            Column("nbytes", int, STAYS, local=integer()),
            Column("checksum", str, STAYS, local=_XXH3),
        ),
    ),
    "steps": Table(
        (
            Column("key", str, STAYS, local=_XXH3),
            Column("pieces", int, STAYS, local=integer(1)),
            Column("checksum", str, STAYS, local=_XXH3),
        ),
    ),
    "downloads": Table(
        (
            Column("path", str, STAYS, local=path),
            Column("repo", str, STAYS, local=text()),
            Column("name", str, STAYS, local=text()),
            Column("nbytes", int, STAYS, local=integer()),
            Column("inode", int, STAYS),
            Column("at", str, STAYS, local=time),
        ),
    ),
}
"""Every table, by name. docs/architecture/ledger.md describes the columns."""
