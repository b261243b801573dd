"""Sealing a shard: rename its file to the final name, update the ledger, take a snapshot.

A shard that another machine sealed is adopted instead (`ledger.units.Shards`,
`mirror_session.reconcile`).
"""

from __future__ import annotations

from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.ledger import Ledger, take_snapshot
from resumerge.planning.plan import Shard
from resumerge.storage import Storage


def seal(shard: Shard, files: ShardFiles, ledger: Ledger, storage: Storage) -> None:
    """Seal a shard; all of its units must be committed and synced."""
    files.seal(shard)
    record_sealed(shard, ledger, storage)


def record_sealed(
    shard: Shard, ledger: Ledger, storage: Storage, mirrored: tuple[int, str] | None = None
) -> None:
    """Record in the ledger that a shard is sealed, and take a snapshot of the ledger.

    Args:
        shard: the shard; its file has the final name already, here or in the mirror.
        ledger: the ledger of the run; a snapshot is taken beside it.
        storage: writes the snapshot.
        mirrored: the bytes and SHA-256 of a shard that is only in the mirror; None for a shard on
            this machine.
    """
    ledger.shards.seal(shard.number, mirrored)
    take_snapshot(ledger, storage)
