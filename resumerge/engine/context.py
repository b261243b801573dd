"""The context of one command, which is passed to each of its phases."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from resumerge.engine.mirror_session.checks import check_state_apart
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.resource_errors import resumable_disk_errors
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.resources.temporary import TemporaryFolder
from resumerge.engine.shards.hard_links import HardLinks
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.ledger.run_store import RunStore
from resumerge.options import Options
from resumerge.planning import Plan
from resumerge.sources import MetadataCache, Source
from resumerge.sources.reader import SourceReader
from resumerge.storage import Storage

STOP_SECONDS = 0.5
"""Seconds to wait for a server's answer after a signal asked the process to stop."""


@dataclass
class RunContext:
    """The context of one command on one run; it is built once and passed down to the attempt.

    Args:
        options: the command's options. `adopt` sets options that the command left out to the run's.
        memory_limit: bytes of RSS that the process may use, lowered after the kernel killed a
            worker because of its memory; None to use the options.
        run_id: the run's id; None until a run is found or created.
        mirror: the session with the mirror; None until it is opened.
    """

    options: Options
    reporter: Reporter
    storage: Storage
    stop: StopRequest
    runs: RunStore
    memory_limit: int | None = None
    metadata: MetadataCache = field(init=False)
    run_id: str | None = None
    mirror: MirrorSession | None = None
    _temporary: list[TemporaryFolder] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.metadata = MetadataCache(self.runs.folder)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Handle signals; at the end, release the mirror's lease and delete temporary folders.

        Raises:
            Resumable: a disk error occurred inside the context.
        """
        with self.stop.listening(), resumable_disk_errors():
            try:
                yield
            finally:
                if self.mirror is not None:
                    self.mirror.release()
                for folder in self._temporary:
                    folder.delete()

    def temporary_folder(self) -> Path:
        """Return a new folder, which is deleted at the end of `working` or of the process."""
        folder = TemporaryFolder()
        self._temporary.append(folder)
        return folder.path

    def reader(self, sources: Mapping[int, Source] | Sequence[Source]) -> SourceReader:
        """Return a reader of the sources, which stops waiting for a server after a signal."""
        checks_after_signal: list[float] = []

        def check() -> None:
            self.reporter.heartbeat()  # a stalled request has its own timeout
            if self.stop.requested:
                checks_after_signal.append(time.monotonic())
                if checks_after_signal[-1] - checks_after_signal[0] > STOP_SECONDS:
                    self.stop.check()

        return SourceReader(sources, check)

    def shard_files(self, plan: Plan, folder: Path, *, sparse: bool = False) -> ShardFiles:
        """Return the files of a plan's shards in the output folder; see `ShardFiles`."""
        hard_links = HardLinks(self.storage, self.metadata) if self.options.link else None
        return ShardFiles(plan, folder, self.storage, sparse=sparse, links=hard_links)

    @property
    def memory(self) -> int | None:
        """The bytes of RSS that the attempt may use; None if only the machine limits it."""
        return self.memory_limit or self.options.memory

    @property
    def frees_shards(self) -> bool:
        """Whether shards are deleted here once the mirror has them."""
        return bool(self.options.mirror and self.options.mirror_then_delete)

    def open_mirror(self, url: str) -> MirrorSession:
        """Return the session with a mirror, without reading from the mirror.

        Raises:
            InputError: a mirror cannot have this address.
        """
        session = MirrorSession(url, self.options, self.reporter, self.stop)
        self.reporter.doing(f"looking at {session.url}")
        check_state_apart(self.runs.folder, session.store)
        if self.mirror is None or self.mirror.url != session.url:
            if self.mirror is not None:
                self.mirror.release()
            self.mirror = session
        return self.mirror
