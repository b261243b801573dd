"""What becomes of a finished task: its hashes are journaled, or compared with those known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from resumerge.engine.cluster.exchange.base import Exchange
from resumerge.engine.cluster.outcomes import HASH_CONFLICT, Finished, HashConflict
from resumerge.engine.evaluation.source_watch import SourceWatch
from resumerge.engine.execute.committer import bytes_committed
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.engine.shards.shard_record import ShardRecord
from resumerge.errors import Resumable
from resumerge.host.memory import measure_memory, peak_rss, rss
from resumerge.ledger import Ledger, Progress, take_snapshot
from resumerge.planning.plan import Plan, Shard
from resumerge.storage import Storage


@dataclass
class ShardJournal:
    """Journals shards as tasks finish them. The first hashes of a block are kept.

    Args:
        progress: of every unit, as it is known now.
        sealed: called with the number of a shard that is sealed; may raise to end the run.
    """

    plan: Plan
    ledger: Ledger
    attempt: int
    budget: int
    files: ShardFiles
    exchange: Exchange
    watch: SourceWatch
    storage: Storage
    progress: list[Progress]
    sealed: Callable[[int], None]
    _units: int = 0
    _nbytes: int = 0
    _batch: int = 0
    _before: int = field(init=False)

    def __post_init__(self) -> None:
        self._before = bytes_committed(self.plan.units, self.progress)

    @property
    def bytes_done(self) -> int:
        """Bytes of output that are committed."""
        return self._before + self._nbytes

    @property
    def units_done(self) -> int:
        """Units that are complete."""
        return sum(known.checksum is not None for known in self.progress)

    def commit(self, shard: Shard, finished: Finished, task: str) -> bool:
        """Journal a shard and seal it; False if its file is not where it should be.

        Raises:
            Resumable: a source changed, or some blocks had other hashes before.
        """
        record = finished.record
        self.compare(shard, record, task, str(finished.node))
        self.watch.check(self.plan.units[shard.first : shard.last])
        if not self.exchange.has(shard, record):
            return False
        fresh = [unit for unit in record.units if self.progress[unit.number].checksum is None]
        known = [self.progress[unit.number] for unit in fresh]
        before = bytes_committed([self.plan.units[unit.number] for unit in fresh], known)
        self._batch += 1
        self._units += len(fresh)
        self._nbytes += sum(self.plan.units[unit.number].nbytes for unit in fresh) - before
        totals = {
            "units_committed": self._units,
            "bytes_committed": self._nbytes,
            "peak_rss": peak_rss(),
        }
        self.ledger.units.commit_batch(self.attempt, self._batch, fresh, totals, self._sample())
        self.ledger.shards.seal(shard.index, record.mirrored)
        for unit in fresh:
            self.progress[unit.number] = Progress(
                len(unit.hashes) // 16, unit.hashes, b"", unit.checksum, self.attempt, self._batch
            )
        self.files.remove(shard)  # what an attempt without a cluster had begun
        take_snapshot(self.ledger, self.storage)
        self.exchange.journaled(task, shard)
        self.sealed(shard.index)
        return True

    def compare(self, shard: Shard, record: ShardRecord, task: str, node: str) -> None:
        """Compare what a task computed with what is known of the shard's blocks.

        Raises:
            Resumable: they differ.
        """
        for unit in record.units:
            known = self.progress[unit.number].hashes
            if unit.hashes[: len(known)] == known:
                continue
            name = self.plan.units[unit.number].name
            differing = next(
                n for n in range(0, len(known), 16) if unit.hashes[n : n + 16] != known[n : n + 16]
            )
            first, second = known[differing:][:16].hex(), unit.hashes[differing:][:16].hex()
            conflict = HashConflict(name, differing // 16, first, second)
            facts = {"shard": shard.name, "task": task, "node": node, **asdict(conflict)}
            self.ledger.events.add(HASH_CONFLICT, **facts)
            raise Resumable(HASH_CONFLICT, conflict.message(shard.name, node))

    def _sample(self) -> dict[str, int]:
        return {
            "rss": rss(),
            "available": measure_memory().available,
            "budget": self.budget,
            "batch_bytes": 0,
            "bytes_done": self.bytes_done,
        }
