"""The files of an output folder that a run wrote: it may replace or delete only those.

The name alone proves nothing: the user may have put a file of that name there, or edited ours.
"""

from __future__ import annotations

import os
from pathlib import Path

from resumerge.backup_names import backup_name
from resumerge.engine.recovery.published import files_of_tasks
from resumerge.engine.shards.checksums import file_checksum
from resumerge.engine.shards.shard_files import PARTIAL
from resumerge.kernels.hashes import hash_block
from resumerge.ledger import Ledger
from resumerge.storage import Storage


def written_files(ledger: Ledger, out: Path) -> set[str]:
    """Return the names, relative to `out`, of the files that are as the run wrote them.

    A shard is recognised by its size and header, a companion file by its checksum, and an
    unfinished file by its name, as is what tasks of a cluster left.
    """
    shards = [row["name"] for row in ledger.shards.all() if _has_head(out / row["name"], row)]
    companions = [
        name
        for name, checksum in ledger.companions.checksums().items()
        if has_checksum(out / name, checksum)
    ]
    partial = [
        name + PARTIAL for name in ledger.written_names() if (out / (name + PARTIAL)).is_file()
    ]
    return {*shards, *companions, *partial, *files_of_tasks(out)}


def has_checksum(path: Path, checksum: str) -> bool:
    """Return whether a file exists and has this xxh3-128 (hex digits)."""
    return path.is_file() and file_checksum(path) == checksum


def _has_head(path: Path, row: dict[str, object]) -> bool:
    if not path.is_file() or path.stat().st_size != row["nbytes"]:
        return False
    with path.open("rb") as file:
        return hash_block(file.read(int(str(row["header_bytes"])))).hex() == row["header_checksum"]


def rename_to_backup(path: Path, storage: Storage) -> Path:
    """Rename a file that the run did not write, so that its name is free; see `backup_name`.

    Returns:
        The new path.
    """
    backup = path.with_name(backup_name(path.name, lambda n: os.path.lexists(path.with_name(n))))
    storage.rename(path, backup)
    return backup
