"""One attempt: recover what is there, merge what is not, finish the folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from resumerge.engine.execute.checksums import hash_block
from resumerge.engine.execute.disk_quota import DiskQuota, takes_space_later
from resumerge.engine.execute.downloads import Downloads
from resumerge.engine.execute.reporter import Reporter
from resumerge.engine.execute.shard_files import ShardFiles
from resumerge.engine.execute.work_queue import fetching_order
from resumerge.engine.recovery.damage import forget_damaged
from resumerge.engine.recovery.ownership import has_checksum, set_aside
from resumerge.engine.resources.disk_errors import DISK_ERRORS, out_of_order
from resumerge.engine.resources.governor import LARGEST_BATCH
from resumerge.engine.resources.out_of_memory import is_out_of_memory, out_of_memory
from resumerge.engine.resources.signals import StopRequest
from resumerge.errors import Interrupted, ResumergeError
from resumerge.host.garbage import collect_as_usual
from resumerge.host.machine import boot_id, hostname
from resumerge.host.memory import peak_rss, rss
from resumerge.hub.metadata_cache import MetadataCache
from resumerge.ledger import Ledger, Progress, take_snapshot
from resumerge.mirror import Replicator
from resumerge.mirror.backup_names import CARD
from resumerge.output import companions
from resumerge.planning.estimates.memory import MemoryNeed
from resumerge.planning.plan import Plan
from resumerge.sources.hub.prefetch import Prefetcher
from resumerge.storage import Storage

CONFIG = "config.json"


@dataclass(frozen=True)
class Attempt:
    """Everything that an attempt works with.

    Args:
        budget: bytes of RSS.
        need: what the merge is predicted to take.
        memory_wait: seconds to wait for memory for one block.
        metadata: what is known of files of the Hub.
        evict: downloads of this run are removed as soon as nothing needs them.
        distrust: the ledger was restored from a snapshot; nothing on disk is trusted unread.
        mirror: where sealed shards are brought meanwhile.
    """

    plan: Plan
    ledger: Ledger
    out: Path
    storage: Storage
    reporter: Reporter
    stop: StopRequest
    threads: int
    budget: int
    need: MemoryNeed
    memory_wait: float
    device: str
    metadata: MetadataCache
    offline: bool
    evict: bool
    verify_all: bool
    mirror: Replicator | None = None

    def run(self) -> float:
        """Work until the output is whole; seconds of merging are returned.

        Raises:
            Interrupted, Resumable: stopped short; what is committed stays.
        """
        with self.stop.deferred():
            number = self.ledger.start_attempt(
                {
                    "pid": os.getpid(),
                    "host": hostname(),
                    "boot_id": boot_id(),
                    "budget": self.budget,
                    "batch_bytes": LARGEST_BATCH,
                }
            )
            self.ledger.set_state("running")
        outcome, state, started, merging = "error", "failed", time.monotonic(), 0.0
        try:
            self.stop.check()
            self.reporter.began(number, self.budget)
            merging = self._merge(number)
            self._finish()
            self._finish_mirror()
            outcome = state = "done"
            return merging
        except Interrupted:
            outcome, state = "interrupted", "interrupted"
            raise
        except (ResumergeError, *DISK_ERRORS) as error:
            state = "interrupted"
            stopped = error if isinstance(error, ResumergeError) else out_of_order(error)
            with suppress(*DISK_ERRORS):
                self.ledger.event("stopped", reason=str(stopped))
            raise stopped from error
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            outcome, state = "oom", "interrupted"
            raise out_of_memory(error) from error
        finally:
            if self.mirror is not None:
                self.mirror.close()
            with suppress(*(() if outcome == "done" else DISK_ERRORS)), self.stop.deferred():
                self.ledger.end_attempt(
                    number,
                    outcome,
                    peak_rss=peak_rss(),
                    seconds=time.monotonic() - started,
                    merging_seconds=merging,
                )
                self.ledger.set_state(state)
                take_snapshot(self.ledger, self.storage)

    def _merge(self, number: int) -> float:
        """Bring the shards to where the ledger says they are, then compute what is pending.

        The files that this needs are brought meanwhile.

        Returns:
            Seconds until everything was committed, without loading torch.
        """
        from resumerge.engine.execute.committer import Committer
        from resumerge.engine.execute.evaluator import Evaluator
        from resumerge.engine.execute.page_cache import PageCache
        from resumerge.engine.execute.scheduler import Scheduler
        from resumerge.engine.recovery.recovery import Recovery
        from resumerge.engine.resources.allocator import reuse_freed_memory
        from resumerge.engine.resources.governor import Governor
        from resumerge.sources.reader import SourceReader

        reuse_freed_memory()
        collect_as_usual()
        plan, ledger, storage, metadata = self.plan, self.ledger, self.storage, self.metadata
        sparse = takes_space_later(plan, self.out, frees=self._frees)
        files = ShardFiles(plan, self.out, storage, sparse=sparse)
        reader = SourceReader(plan.sources)
        try:
            self.reporter.doing("comparing downloads with their hashes")
            forget_damaged(plan, ledger, metadata, self._go_on)
            started = time.monotonic()
            self.reporter.doing("comparing the output with the ledger")
            progress = Recovery(
                plan, ledger, files, storage, self.verify_all, self.reporter.heartbeat, self._frees
            ).run()
            room = DiskQuota(plan, files, progress, self.mirror if self._frees else None)
            if self.mirror is not None:
                self.mirror.start()
            downloads = Downloads(plan, ledger, metadata, reader, progress, evict=self.evict)
            downloads.evict_unneeded()
            with self._prefetcher(progress, downloads, room) as prefetcher:
                loading = time.monotonic()
                self.reporter.doing("merging")
                evaluator = Evaluator(plan, reader, self.device)
                need = replace(self.need, base=rss())
                self.stop.check()
                started += time.monotonic() - loading
                watch = Governor(
                    self.budget, need, ledger.event, self.reporter.note, self.memory_wait
                )
                with watch as governor, self.stop.deferred():
                    cache = PageCache(plan, reader, files, governor)
                    committer = Committer(
                        plan,
                        ledger,
                        files,
                        storage,
                        number,
                        governor,
                        cache,
                        downloads.committed,
                        self.mirror.sealed if self.mirror is not None else lambda shard: None,
                    )
                    Scheduler(
                        plan,
                        progress,
                        evaluator,
                        files,
                        storage,
                        committer,
                        governor,
                        cache,
                        self.stop,
                        self.threads,
                        prefetcher,
                        self.reporter,
                        room,
                    ).run()
            return time.monotonic() - started
        finally:
            files.close()
            reader.close()

    def _go_on(self) -> None:
        """Called while a file is read for its hash."""
        self.reporter.heartbeat()
        self.stop.check()

    def _prefetcher(
        self, progress: list[Progress], downloads: Downloads, room: DiskQuota
    ) -> Prefetcher:
        """What brings the files that pending units read, and those that lie beside the weights."""
        reference = self.plan.sources[self.plan.reference]
        pending = [u for u, known in zip(self.plan.units, progress) if known.checksum is None]
        beside = [(reference, name) for name in reference.companions]
        return Prefetcher(
            [*beside, *fetching_order(self.plan, pending, by_shard=self._frees)],
            self.metadata,
            offline=self.offline,
            evicting=self.evict,
            on_start=downloads.began,
            on_event=self.ledger.event,
            reserved_bytes=room.reserved_bytes,
        )

    @property
    def _frees(self) -> bool:
        """Whether shards go away once the mirror has them."""
        return self.mirror is not None and self.mirror.options.then_delete

    def _companions(self) -> Iterator[tuple[str, bytes | Path]]:
        return companions(self.plan, self.out.name, self.metadata, offline=self.offline)

    def _finish_mirror(self) -> None:
        """Wait for the mirror, and complete the model there."""
        if self.mirror is not None:
            self.reporter.doing("waiting for the mirror")
            with self.stop.deferred():
                self.mirror.finish(self._companions, self._go_on)

    def _finish(self) -> None:
        """Write the files beside the shards, each whole or not at all, config.json last.

        Not config.json where a shard is in the mirror alone: no loader shall take the folder for
        a model.
        """
        self.reporter.doing("finishing")
        noted = self.ledger.companions()
        partly = self._frees or not all((self.out / s.name).exists() for s in self.plan.shards)
        for name, content in self._companions():
            if partly and name == CONFIG:
                continue
            path = self.out / name
            data = content if isinstance(content, bytes) else content.read_bytes()
            checksum = hash_block(data).hex()
            if self._is_another(path, {checksum, noted.get(name)}) and not self._make_way(path):
                continue
            self.ledger.note_companion(name, len(data), checksum)
            self.storage.make_folder(path.parent)
            self.storage.write_file(path, data)

    def _is_another(self, path: Path, ours: set[str | None]) -> bool:
        """Whether a file is in the place of ours that has none of these checksums."""
        there = path.is_symlink() or path.exists()
        return there and not any(has_checksum(path, checksum) for checksum in ours if checksum)

    def _make_way(self, path: Path) -> bool:
        """Keep a file that the user put in the place of ours; whether its name is free then.

        A model card is the user's to write. Any other file would change what the model is.
        """
        if path.name == CARD and path.parent == self.out:
            self.ledger.event("file_kept", name=path.name)
            self.reporter.note(f"{path} is not ours, and is left as it is")
            return False
        aside = set_aside(path, self.storage)
        self.ledger.event("file_set_aside", name=path.name, now=aside.name)
        self.reporter.note(f"{path} was not written by this run: it is now {aside.name}")
        return True
