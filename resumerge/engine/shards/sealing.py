"""Sealing of a shard: its file gets its final name, the ledger records it, a snapshot is taken.

A shard that another machine sealed is adopted: `ledger.units.Shards`, `mirror_session.reconcile`.
"""

from __future__ import annotations

from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.ledger import Ledger, take_snapshot
from resumerge.planning.plan import Shard
from resumerge.storage import Storage


def seal(shard: Shard, files: ShardFiles, ledger: Ledger, storage: Storage) -> None:
    """Seal a shard whose units are all committed and synced."""
    files.seal(shard)
    record_sealed(shard, ledger, storage)


def record_sealed(
    shard: Shard, ledger: Ledger, storage: Storage, mirrored: tuple[int, str] | None = None
) -> None:
    """Record that a shard's file has its final name, and take a snapshot of the ledger.

    Args:
        shard: the shard.
        ledger: the run's ledger.
        storage: writes the snapshot.
        mirrored: the bytes and SHA-256 of a shard that is in the mirror already, and only there.
    """
    ledger.shards.seal(shard.number, mirrored)
    take_snapshot(ledger, storage)
