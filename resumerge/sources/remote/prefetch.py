"""Downloads remote files in background threads while the files that are ready are merged."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from resumerge.errors import InputError, Problem, Reason, Resumable, ResumergeError, unavailable
from resumerge.host.machine import FREE_BESIDE_DOWNLOADS, free_bytes
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.file import RemoteFile
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sizes import show_size
from resumerge.sources.formats.registry import read_header
from resumerge.sources.remote.files import ensure_cached, remote_file
from resumerge.sources.types import Source
from resumerge.tensors import Stored

THREADS = 2
"""The number of files downloaded at once: one can be hashed while the other is received."""

SWITCH_SECONDS = 0.0005
"""The longest switch interval of Python threads during downloads, in seconds.

A download waits for a switch for every 64 KiB. With the default interval of 5 ms, a busy main
thread (importing torch, for example) would limit a download to 13 MB/s.
"""

STOP_SECONDS = 0.5
"""The seconds to wait for a download to end after it was stopped."""


@dataclass(frozen=True)
class DownloadProgress:
    """The progress of all downloads together.

    Args:
        file: the name of the file that received bytes last.
        bytes_done: the bytes in the cache of all files to be downloaded.
        bytes_total: the total size of all files to be downloaded, in bytes.
    """

    file: str
    bytes_done: int
    bytes_total: int


class Prefetcher:
    """The downloads of files, in order, in background threads; a context manager.

    A file is ready when its content has been checked. If a file cannot be downloaded, `wait` raises
    the error. The caller can therefore first use the files that are ready.

    Args:
        wanted: the remote sources, each with the name of a file, the most urgent first.
        metadata: the metadata cache of remote files.
        offline: do not use the network.
        evicting: whether files that are no longer needed are deleted during the run. If true, a
            download may wait for disk space.
        on_start: called before a download with the file and the inode of its partial file.
        on_event: called with an event's kind and facts when a fault is found or repaired.
        reserved_bytes: returns the number of bytes on the disk that downloads must leave free for
            the output. Its arguments are whether the caller is blocked, and the cache's folder. It
            is called only if `evicting` is true.

    Attributes:
        ready_count_when_blocked: the number of ready files at the time when the caller ran out of
            work and could free no more disk space; None while it has work.
    """

    def __init__(
        self,
        wanted: Iterable[tuple[Source, str]],
        metadata: MetadataCache,
        *,
        offline: bool = False,
        evicting: bool = False,
        on_start: Callable[[RemoteFile, int], None] = lambda file, inode: None,
        on_event: Callable[..., None] = lambda kind, **facts: None,
        reserved_bytes: Callable[[bool, Path], int] = lambda blocked, cache: 0,
    ) -> None:
        self.ready_count_when_blocked: int | None = None
        self._wanted = list(
            {remote_file(source, name): source.part_of(name)[0] for source, name in wanted}.items()
        )
        self._metadata, self._offline, self._evicting = metadata, offline, evicting
        self._on_start, self._on_event = on_start, on_event
        self._reserved_bytes = reserved_bytes
        self._changed = threading.Condition()
        self._next = 0
        self._admitted: set[RemoteFile] = set()
        self._ready: set[RemoteFile] = set()
        self._failures: list[ResumergeError] = []
        self._bug: Exception | None = None
        self._stopped = threading.Event()
        self._active: list[DownloadCallbacks] = []
        self._bytes_done: dict[RemoteFile, int] = {}
        self._latest = ""
        self._sizes = {file: file.size for file, _ in self._wanted if not file.whole}
        self._threads = [
            threading.Thread(target=self._work, name=f"prefetch {thread_number}", daemon=True)
            for thread_number in range(min(THREADS, len(self._wanted)))
        ]

    def __enter__(self) -> Prefetcher:
        self._switch_interval = sys.getswitchinterval()
        if self._threads:
            sys.setswitchinterval(min(self._switch_interval, SWITCH_SECONDS))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        """Abort the downloads. The next attempt resumes them."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
            responses = [callbacks.response for callbacks in self._active]
        for response in responses:
            if response is not None:
                response.abort()
        deadline = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        sys.setswitchinterval(self._switch_interval)

    def is_ready(self, source: Source, name: str) -> bool:
        """Return whether a file can be read: it is checked in the cache, streamed or local."""
        if name in source.files and source.is_streamed(name):
            return True
        return not source.part_of(name)[0].is_remote or remote_file(source, name) in self._ready

    @property
    def ready_count(self) -> int:
        """The number of files that are ready."""
        return len(self._ready)

    @property
    def progress(self) -> DownloadProgress | None:
        """The progress of the downloads; None if nothing has to be downloaded."""
        with self._changed:
            if not self._sizes:
                return None
            bytes_done = sum(self._bytes_done.get(file, 0) for file in self._sizes)
            return DownloadProgress(self._latest, bytes_done, sum(self._sizes.values()))

    def wait(self, seconds: float) -> None:
        """Wait until another file is ready, for at most the given time.

        Raises:
            Resumable: a file cannot be downloaded. Offline, all files are checked first, and the
                message lists all that are missing or damaged.
        """
        with self._changed:
            earlier_count = len(self._ready)
            self._changed.wait_for(
                lambda: len(self._ready) > earlier_count or self._has_failed(), timeout=seconds
            )
            if self._bug is not None:
                raise self._bug
            if self._has_failed():
                raise _combined(self._failures)

    def _has_failed(self) -> bool:
        has_checked_all = len(self._ready) + len(self._failures) == len(self._wanted)
        return bool(self._bug or (self._failures and (has_checked_all or not self._offline)))

    def _work(self) -> None:
        while (file_and_source := self._take()) is not None:
            file, source = file_and_source
            try:
                self._prepare(file, source)
            except _Stopped:
                return
            except ResumergeError as error:
                with self._changed:
                    self._failures.append(error)
            except Exception as error:
                if self._stopped.is_set():
                    return
                with self._changed:
                    self._bug = error
            else:
                with self._changed:
                    self._ready.add(file)
            finally:
                with self._changed:
                    self._admitted.add(file)
                    self._changed.notify_all()

    def _take(self) -> tuple[RemoteFile, Source] | None:
        with self._changed:
            has_failed = self._bug is not None or (self._failures and not self._offline)
            if self._stopped.is_set() or has_failed or self._next == len(self._wanted):
                return None
            self._next += 1
            return self._wanted[self._next - 1]

    def _prepare(self, file: RemoteFile, source: Source) -> None:
        """Download a file if necessary, and compare its header with the planned header."""
        callbacks = DownloadCallbacks(
            on_progress=lambda nbytes: self._progressed(file, nbytes),
            check=self._check,
            sleep=self._sleep,
            on_start=lambda inode: self._on_start(file, inode),
            on_event=self._on_event,
        )
        with self._changed:
            self._active.append(callbacks)
        try:
            self._ensure_cached(file, callbacks)
            if not _has_planned_header(file, source):
                # Either the file or the planned header is wrong: read the file again to decide.
                self._metadata.forget_verdict(file.content or file.pointer)
                self._ensure_cached(file, callbacks)
                if not _has_planned_header(file, source):
                    self._metadata.store_header(file.identity, None)
                    raise _other_header(file)
        finally:
            with self._changed:
                self._active.remove(callbacks)
        self._progressed(file, file.size)

    def _ensure_cached(self, file: RemoteFile, callbacks: DownloadCallbacks) -> None:
        ensure_cached(
            file,
            self._metadata,
            callbacks,
            offline=self._offline,
            reserve=lambda needed: self._reserve(file, needed),
        )

    def _reserve(self, file: RemoteFile, needed: int) -> None:
        """Wait until all earlier files have their disk space, and the disk has space for this file.

        Args:
            file: the file whose download will begin.
            needed: the number of bytes that the download adds to the disk.
        """
        with self._changed:
            self._sizes.setdefault(file, file.size)
            self._bytes_done[file] = file.size - needed
            wanted_files = [wanted_file for wanted_file, _ in self._wanted]
            earlier_files = wanted_files[: wanted_files.index(file)]
            while not self._admitted.issuperset(earlier_files) or not self._fits(file, needed):
                self._check()
                self._changed.wait(0.2)
            self._admitted.add(file)

    def _fits(self, file: RemoteFile, needed: int) -> bool:
        """Return whether the disk has space for a download in addition to the active downloads.

        Raises:
            Resumable: the disk has too little space, and no space will become free.
        """
        active_files = [f for f in self._admitted - self._ready if f in self._bytes_done]
        expected_bytes = sum(
            active_file.size - self._bytes_done[active_file] for active_file in active_files
        )
        # This count is read before the free space, because a blocked caller has already freed all
        # the space that it can. A caller that has not seen the latest ready file is not blocked.
        is_blocked = self.ready_count_when_blocked == len(self._ready)
        free_space = free_bytes(file.cache.absolute())
        reserved_space = self._reserved_bytes(is_blocked, file.cache) if self._evicting else 0
        if free_space - expected_bytes >= needed + FREE_BESIDE_DOWNLOADS + reserved_space:
            return True
        if self._evicting and (expected_bytes or not is_blocked):
            return False
        raise _disk_too_small(file, needed, free_space - expected_bytes, self._evicting)

    def _progressed(self, file: RemoteFile, nbytes: int) -> None:
        with self._changed:
            if file in self._sizes:
                self._bytes_done[file] = nbytes
                self._latest = file.name

    def _check(self) -> None:
        if self._stopped.is_set():
            raise _Stopped

    def _sleep(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise _Stopped


class _Stopped(Exception):
    """The exception that ends a thread after the prefetcher was closed."""


def _has_planned_header(file: RemoteFile, source: Source) -> bool:
    """Return whether a file's header equals the header that the run was planned with."""
    if file.name not in source.files:
        return True  # companions have no header
    tensors = source.numbered(0).tensors.values()  # tensors of a header have the source number 0
    planned_tensors = [t for t in tensors if isinstance(t, Stored) and t.file == file.name]
    try:
        return _are_same(read_header(file.pointer, file.name).tensors.values(), planned_tensors)
    except InputError:
        return False


def _are_same(found: Iterable[Stored], planned: Iterable[Stored]) -> bool:
    """Return whether the found and the planned tensors of a file are the same.

    A tensor may have a longer or shorter name in the source than in the file: with its component
    before the name, or without ``module.``.
    """
    sort_key = attrgetter("offset", "shape", "dtype", "name")
    planned_tensors, found_tensors = sorted(planned, key=sort_key), sorted(found, key=sort_key)
    return len(planned_tensors) == len(found_tensors) and all(
        replace(planned_tensor, name="") == replace(found_tensor, name="")
        and (
            planned_tensor.name.endswith(found_tensor.name)
            or found_tensor.name.endswith(planned_tensor.name)
        )
        for planned_tensor, found_tensor in zip(planned_tensors, found_tensors)
    )


def _other_header(file: RemoteFile) -> Resumable:
    return Resumable(
        Reason.SOURCE_CHANGED,
        f"The header of {file.name} of {file.model} differs from the header that the run was "
        "planned with. Start over with --restart.",
    )


def _disk_too_small(file: RemoteFile, needed: int, free: int, evicting: bool) -> Resumable:
    advice = (
        "Downloads that are no longer needed were already deleted. Free some space, or move the "
        "cache by setting HF_HOME, or add --stream, which stores no model; then resume"
        if evicting
        else "Free some space, move the cache by setting HF_HOME, or add --evict, which deletes "
        "downloads of this run when they are no longer needed; then resume"
    )
    return Resumable(
        Reason.DISK_FULL,
        f"No disk space to download {file.name} of {file.model} into {file.cache}: "
        f"{show_size(needed)} is needed and {show_size(free)} is free.\n{advice}.",
    )


def _combined(failures: list[ResumergeError]) -> ResumergeError:
    """Return all failures as one error. It is `Resumable` because the run has already started."""
    all_problems: list[Problem] = []
    for error in failures:
        if not isinstance(error, InputError):
            return error
        all_problems += error.problems
    return unavailable(InputError(all_problems))
