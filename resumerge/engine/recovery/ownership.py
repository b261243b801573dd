"""Ownership: which files of an output folder are still as a run wrote them.

Code that replaces or deletes files of a run outside an attempt checks them here: `--restart`, the
removal of old runs, and, for single files, `companions` and `verify`. The name of a file is no
proof: the user may have replaced or edited the run's file. The recovery of shards has different
rules (`recovery`), because the ledger records what was committed to each shard.
"""

from __future__ import annotations

from pathlib import Path

from resumerge.engine.recovery.published import files_of_tasks
from resumerge.engine.shards.checksums import file_checksum
from resumerge.engine.shards.shard_files import COMPACTED, PARTIAL
from resumerge.kernels.hashes import hash_block
from resumerge.ledger import Ledger


def written_files(ledger: Ledger, out: Path) -> set[str]:
    """Return the names, relative to `out`, of the files that are still as the run wrote them.

    A shard is recognised by its size and header, and a companion by its checksum. Unfinished files
    and the files of cluster tasks are recognised by their names.
    """
    shard_names = [row["name"] for row in ledger.shards.all() if _has_head(out / row["name"], row)]
    companion_names = [
        name
        for name, checksum in ledger.companions.checksums().items()
        if has_checksum(out / name, checksum)
    ]
    unfinished_names = [
        name + ending
        for name in ledger.written_names()
        for ending in (PARTIAL, COMPACTED)
        if (out / (name + ending)).is_file()
    ]
    return {*shard_names, *companion_names, *unfinished_names, *files_of_tasks(out)}


def has_checksum(path: Path, checksum: str) -> bool:
    """Return whether a file exists and has this xxh3-128 (hex digits)."""
    return path.is_file() and file_checksum(path) == checksum


def _has_head(path: Path, row: dict[str, object]) -> bool:
    if not path.is_file() or path.stat().st_size != row["nbytes"]:
        return False
    with path.open("rb") as file:
        return hash_block(file.read(int(str(row["header_bytes"])))).hex() == row["header_checksum"]
