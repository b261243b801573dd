"""Committing a batch: sync its shards, journal its units, seal the shards that are complete."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

from resumerge.engine.execute.checksums import HASH_BYTES, unit_checksum
from resumerge.engine.execute.page_cache import PageCache
from resumerge.engine.execute.shard_files import ShardFiles
from resumerge.engine.resources.governor import Governor
from resumerge.ledger import Ledger, UnitCommit, take_snapshot
from resumerge.planning.plan import Plan, Unit
from resumerge.storage import Storage

_log = logging.getLogger(__name__)

SAMPLE_SECONDS, SAMPLES = 1.0, 600
"""Least time between two samples in the ledger, and after how many it begins to grow: their number
is bounded by the logarithm of the run's time."""


@dataclass(frozen=True)
class WrittenBlock:
    """A block that is written but not synced."""

    unit: Unit
    index: int
    hash: bytes
    seconds: float


class Committer:
    """Commits one batch in the background while the next one is computed.

    `submit` waits for the batch before: never more than two are without a commit, the one that is
    being synced and the one that is being computed.
    """

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        files: ShardFiles,
        storage: Storage,
        attempt: int,
        governor: Governor,
        cache: PageCache,
        committed: Callable[[Sequence[int]], None],
        sealed: Callable[[int], None] = lambda shard: None,
    ) -> None:
        """
        Args:
            committed: told the numbers of units that are committed now, in the commit's thread.
            sealed: told the number of a shard that is sealed now, likewise; may raise to end the
                run.
        """
        self._plan, self._ledger, self._files, self._storage = plan, ledger, files, storage
        self._attempt, self._governor, self._cache = attempt, governor, cache
        self._committed, self._sealed = committed, sealed
        self._began = time.monotonic()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._last: Future[None] | None = None
        self._batch = 0
        self._sampled = float("-inf")
        progress = ledger.progress()
        self._hashes = {
            unit.index: bytearray(known.hashes)
            for unit, known in zip(plan.units, progress)
            if known.checksum is None
        }
        self._left = Counter(plan.units[number].shard for number in self._hashes)
        self.bytes_committed = sum(
            unit.block_bytes(index)[1]
            for unit, known in zip(plan.units, progress)
            for index in range(known.committed_blocks)
        )
        self.units_committed = 0
        self._bytes_before = self.bytes_committed

    def submit(self, batch: list[WrittenBlock]) -> None:
        """Hand over a batch, its blocks in order; returns when the batch before is committed."""
        self.wait()
        self._last = self._thread.submit(self._commit, batch)

    def wait(self) -> None:
        """Wait for the last batch; raises what went wrong with it."""
        if self._last is not None:
            last, self._last = self._last, None
            last.result()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True)

    def _commit(self, batch: list[WrittenBlock]) -> None:
        for shard in {written.unit.shard for written in batch}:
            self._files.sync(shard)
        for unit, blocks in groupby(batch, lambda written: written.unit):
            indices = [written.index for written in blocks]
            self._cache.finished(unit, indices[0], indices[-1])
        self._journal(batch)
        for shard in {written.unit.shard for written in batch}:
            if self._left[shard] == 0:
                self._seal(shard)

    def _journal(self, batch: list[WrittenBlock]) -> None:
        seconds: Counter[int] = Counter()
        for written in batch:
            hashes = self._hashes[written.unit.index]
            assert len(hashes) == written.index * HASH_BYTES
            hashes += written.hash
            seconds[written.unit.index] += written.seconds  # type: ignore[assignment]
        units = []
        for number, spent in seconds.items():
            unit, hashes = self._plan.units[number], self._hashes[number]
            whole = len(hashes) == unit.blocks * HASH_BYTES
            checksum = unit_checksum(bytes(hashes)) if whole else None
            units.append(UnitCommit(number, bytes(hashes), checksum, spent))
        done = [unit.number for unit in units if unit.checksum]
        self._batch += 1
        self.units_committed += len(done)
        self.bytes_committed += sum(w.unit.block_bytes(w.index)[1] for w in batch)
        totals = {
            "units_committed": self.units_committed,
            "bytes_committed": self.bytes_committed - self._bytes_before,
            "peak_rss": self._governor.peak_rss,
            "batch_bytes": self._governor.batch_bytes,
        }
        self._ledger.commit_batch(self._attempt, self._batch, units, totals, self._sample())
        for number in done:
            del self._hashes[number]
            self._left[self._plan.units[number].shard] -= 1
        _log.debug("batch %d committed: %d blocks", self._batch, len(batch))
        self._committed(done)

    def _sample(self) -> dict[str, int] | None:
        """Memory and progress, for the ledger, at a bounded rate."""
        now = time.monotonic()
        if now - self._sampled < max(SAMPLE_SECONDS, (now - self._began) / SAMPLES):
            return None
        self._sampled = now
        return {
            "rss": self._governor.rss,
            "available": self._governor.memory.available,
            "budget": self._governor.budget,
            "batch_bytes": self._governor.batch_bytes,
            "bytes_done": self.bytes_committed,
        }

    def _seal(self, number: int) -> None:
        shard = self._plan.shards[number]
        self._files.seal(shard)
        self._ledger.seal(number)
        _log.info("shard %s sealed", shard.name)
        take_snapshot(self._ledger, self._storage)
        self._sealed(number)
