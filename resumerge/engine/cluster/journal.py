"""The journal of finished tasks: it commits their hashes, or compares them with committed ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from resumerge.digests import HASH_BYTES
from resumerge.engine.cluster.exchange.base import Exchange
from resumerge.engine.cluster.outcomes import Finished, HashConflict
from resumerge.engine.evaluation.source_watch import SourceWatch
from resumerge.engine.execute.committer import bytes_committed
from resumerge.engine.execute.computation import Computation
from resumerge.engine.shards.sealing import record_sealed
from resumerge.engine.shards.shard_record import ShardRecord
from resumerge.errors import Reason, Resumable
from resumerge.event_kinds import EventKind
from resumerge.host.memory import measure_memory, peak_rss, rss
from resumerge.ledger import Progress, Sample
from resumerge.planning.plan import Shard


@dataclass
class ShardJournal:
    """A journal of the shards that tasks finish. The first hash of each block is kept.

    Args:
        computation: the computation that is carried out; its ledger and shards are changed.
        exchange: the exchange through which tasks publish shards.
        watch: the watch that notices changed sources before a commit.
        progress: the progress of every unit, which `commit` updates.
    """

    computation: Computation
    exchange: Exchange
    watch: SourceWatch
    progress: list[Progress]
    _units: int = 0
    """The units that this attempt committed."""
    _nbytes: int = 0
    """The bytes of output that this attempt committed."""
    _batch: int = 0
    """The number of the latest batch."""
    _before: int = field(init=False)
    """The bytes of output that were committed before this attempt."""

    def __post_init__(self) -> None:
        self._before = bytes_committed(self.computation.plan.units, self.progress)

    @property
    def bytes_done(self) -> int:
        """The committed bytes of output."""
        return self._before + self._nbytes

    @property
    def units_done(self) -> int:
        """The number of complete units."""
        return sum(unit.is_complete for unit in self.progress)

    def commit(self, shard: Shard, finished: Finished, task: str) -> bool:
        """Journal and seal a shard. Return False if its file is missing, or is another file.

        Raises:
            Resumable: a source changed, or a block was committed with another hash before.
        """
        record, computation = finished.record, self.computation
        self.compare(shard, record, task, str(finished.node))
        self.watch.check(computation.plan.units[shard.first : shard.last])
        if not self.exchange.has(shard, record):
            return False
        new_units = [unit for unit in record.units if not self.progress[unit.number].is_complete]
        progress_before = [self.progress[unit.number] for unit in new_units]
        bytes_before = bytes_committed(
            [computation.plan.units[unit.number] for unit in new_units], progress_before
        )
        self._batch += 1
        self._units += len(new_units)
        self._nbytes += (
            sum(computation.plan.units[unit.number].nbytes for unit in new_units) - bytes_before
        )
        attempt_totals = {
            "units_committed": self._units,
            "bytes_committed": self._nbytes,
            "peak_rss": peak_rss(),
        }
        computation.ledger.units.commit_batch(
            computation.attempt, self._batch, new_units, attempt_totals, self._sample()
        )
        for unit in new_units:
            self.progress[unit.number] = Progress(
                committed_blocks=len(unit.hashes) // HASH_BYTES,
                hashes=unit.hashes,
                input_hashes=b"",
                checksum=unit.checksum,
                attempt=computation.attempt,
                batch=self._batch,
            )
        # An earlier attempt without a cluster may have left a partial file.
        computation.files.remove(shard)
        record_sealed(shard, computation.ledger, computation.context.storage, record.mirrored)
        self.exchange.journaled(task, shard)
        computation.sealed(shard.number)
        return True

    def compare(self, shard: Shard, record: ShardRecord, task: str, node: str) -> None:
        """Compare the hashes that a task computed with the committed ones.

        Raises:
            Resumable: the hashes of a block differ. An event records both.
        """
        for unit in record.units:
            committed_hashes = self.progress[unit.number].hashes
            if unit.hashes[: len(committed_hashes)] == committed_hashes:
                continue
            name = self.computation.plan.units[unit.number].name
            hash_offsets = range(0, len(committed_hashes), HASH_BYTES)
            byte_offset = next(
                n
                for n in hash_offsets
                if unit.hashes[n:][:HASH_BYTES] != committed_hashes[n:][:HASH_BYTES]
            )
            first_hash, second_hash = (
                hashes[byte_offset:][:HASH_BYTES].hex()
                for hashes in (committed_hashes, unit.hashes)
            )
            conflict = HashConflict(name, byte_offset // HASH_BYTES, first_hash, second_hash)
            facts = {"shard": shard.name, "task": task, "node": node, **asdict(conflict)}
            self.computation.ledger.events.add(EventKind.HASH_CONFLICT, **facts)
            raise Resumable(Reason.HASH_CONFLICT, conflict.message(shard.name, node))

    def _sample(self) -> Sample:
        return Sample(
            rss=rss(),
            available=measure_memory().available,
            budget=self.computation.budget.memory,
            batch_bytes=0,
            bytes_done=self.bytes_done,
        )
