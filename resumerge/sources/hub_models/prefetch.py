"""Files of the Hub, brought one after the other in the background while others are merged."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from resumerge.errors import InputError, Problem, Resumable, ResumergeError
from resumerge.hub.cache import HubFile, cache_folder, free_bytes
from resumerge.hub.callbacks import Watch
from resumerge.hub.content_hash import is_intact
from resumerge.hub.metadata_cache import MetadataCache
from resumerge.sources.formats.weight_file import read_weight_header
from resumerge.sources.hub_models.hub_files import bring, hub_file
from resumerge.sources.types import Source

WORKERS = 2
"""Files brought at once: one may be read for its hash while another arrives."""

SPARE = 16_000_000
"""Bytes of the cache's disk that downloads leave free."""

SWITCH_SECONDS = 0.0005
"""Time between two Python threads' turns. A download takes a turn for every 64 KiB: at the usual
5 ms a main thread that is busy (importing torch, say) would hold it to 13 MB/s."""

LEAVE_SECONDS = 0.5
"""Time that a download gets to end after it was told to."""


@dataclass(frozen=True)
class Fetched:
    """How far the downloads are.

    Args:
        file: the one that is arriving, or that arrived last.
        bytes_done: of all files that are to be downloaded.
        bytes_total: likewise.
    """

    file: str
    bytes_done: int
    bytes_total: int


class Prefetcher:
    """Brings files in order, in threads of its own, while used as a context manager.

    A file is here when its content has been checked. What cannot be brought is raised by `wait`,
    so that whoever uses the files can first do what the others allow.
    """

    def __init__(
        self,
        wanted: Iterable[tuple[Source, str]],
        records: MetadataCache,
        *,
        offline: bool = False,
        evicting: bool = False,
        began: Callable[[HubFile, int], None] | None = None,
        event: Callable[..., None] | None = None,
        leaves: Callable[[bool], int] = lambda starving: 0,
    ) -> None:
        """
        Args:
            wanted: Hub sources and names of their files, the most urgent first.
            evicting: files that are no longer needed are being removed, so that room on the disk
                is worth waiting for.
            began: told of a file that is being downloaded, and of the inode that it will have.
            event: told a kind and facts of what went wrong and was mended.
            leaves: bytes of the disk that are somebody else's, who may be starving; only asked
                while files are being removed.
        """
        self.starving_at: int | None = None
        """How many files were here when whoever uses them had nothing to do until another is, and
        nothing else to hope for; None while that is not so."""
        self._wanted = list({hub_file(s, name): s.part_of(name)[0] for s, name in wanted}.items())
        self._records, self._offline, self._evicting = records, offline, evicting
        self._began, self._event = began or _nothing, event or _nothing
        self._leaves = leaves
        self._changed = threading.Condition()
        self._next = 0
        self._placed: set[HubFile] = set()
        self._here: set[HubFile] = set()
        self._failures: list[ResumergeError] = []
        self._bug: Exception | None = None
        self._over = threading.Event()
        self._watches: list[Watch] = []
        self._done: dict[HubFile, int] = {}
        self._latest = ""
        self._total = {file: file.size for file, _ in self._wanted if not file.whole}
        self._threads = [
            threading.Thread(target=self._work, name=f"fetch {n}", daemon=True)
            for n in range(min(WORKERS, len(self._wanted)))
        ]

    def __enter__(self) -> Prefetcher:
        self._switching = sys.getswitchinterval()
        if self._threads:
            sys.setswitchinterval(min(self._switching, SWITCH_SECONDS))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        """What is arriving is cut off: the next download goes on from there."""
        self._over.set()
        with self._changed:
            self._changed.notify_all()
            answers = [watch.answer for watch in self._watches]
        for answer in answers:
            if answer is not None:
                answer.cut()
        until = time.monotonic() + LEAVE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        sys.setswitchinterval(self._switching)

    def has(self, source: Source, name: str) -> bool:
        """Whether a file is here, whole and intact."""
        return source.part_of(name)[0].kind != "hub" or hub_file(source, name) in self._here

    @property
    def starving(self) -> bool:
        """Whether nothing will be done before another file is here.

        Not where one has come that whoever uses them did not see yet.
        """
        return self.starving_at == len(self._here)

    @property
    def arrived(self) -> int:
        """How many files are here."""
        return len(self._here)

    @property
    def fetched(self) -> Fetched | None:
        """How far the downloads are; None where there is none."""
        with self._changed:
            if not self._total:
                return None
            done = sum(self._done.get(file, 0) for file in self._total)
            return Fetched(self._latest, done, sum(self._total.values()))

    def wait(self, seconds: float) -> None:
        """Wait until another file is here, but not for longer than this.

        Raises:
            Resumable: a file cannot be brought. Offline every file is looked at first, and all
                that are missing or damaged are named.
        """
        with self._changed:
            before = len(self._here)
            self._changed.wait_for(
                lambda: len(self._here) > before or self._is_hopeless(), timeout=seconds
            )
            if self._bug is not None:
                raise self._bug
            if self._is_hopeless():
                raise _together(self._failures)

    def _is_hopeless(self) -> bool:
        looked = len(self._here) + len(self._failures) == len(self._wanted)
        return bool(self._bug or (self._failures and (looked or not self._offline)))

    def _work(self) -> None:
        while (item := self._take()) is not None:
            file, source = item
            try:
                self._bring(file, source)
            except _Over:
                return
            except ResumergeError as error:
                with self._changed:
                    self._failures.append(error)
            except Exception as error:
                if self._over.is_set():
                    return
                with self._changed:
                    self._bug = error
            else:
                with self._changed:
                    self._here.add(file)
            finally:
                with self._changed:
                    self._placed.add(file)
                    self._changed.notify_all()

    def _take(self) -> tuple[HubFile, Source] | None:
        with self._changed:
            failed = self._bug is not None or (self._failures and not self._offline)
            if self._over.is_set() or failed or self._next == len(self._wanted):
                return None
            self._next += 1
            return self._wanted[self._next - 1]

    def _bring(self, file: HubFile, source: Source) -> None:
        watch = Watch(
            tell=lambda nbytes: self._tell(file, nbytes),
            check=self._check,
            pause=self._pause,
            began=lambda inode: self._began(file, inode),
            event=self._event,
        )
        with self._changed:
            self._watches.append(watch)
        try:
            self._bring_intact(file, watch)
            if not _has_header(file, source):
                # Read it again, whatever is remembered of it: it, or the plan's header, is wrong.
                path = file.content or file.pointer
                intact = is_intact(path, file.etag, file.size, self._check)
                self._records.settle(path, file.etag, intact)
                self._bring_intact(file, watch)
                if not _has_header(file, source):
                    self._records.keep_header(file.etag, None)
                    raise _other_header(file)
        finally:
            with self._changed:
                self._watches.remove(watch)
        self._tell(file, file.size)

    def _bring_intact(self, file: HubFile, watch: Watch) -> None:
        bring(
            file,
            self._records,
            watch,
            offline=self._offline,
            room=lambda needed: self._find_room(file, needed),
        )

    def _find_room(self, file: HubFile, needed: int) -> None:
        """Wait until earlier files have their room, and this one finds its own."""
        with self._changed:
            self._total.setdefault(file, file.size)
            self._done[file] = file.size - needed
            files = [other for other, _ in self._wanted]
            earlier = files[: files.index(file)]
            while not self._placed.issuperset(earlier) or not self._has_room(file, needed):
                self._check()
                self._changed.wait(0.2)
            self._placed.add(file)

    def _has_room(self, file: HubFile, needed: int) -> bool:
        """Whether a download fits beside those that are under way.

        Raises:
            Resumable: it does not, and there is nothing to wait for.
        """
        arriving = [f for f in self._placed - self._here if f in self._done]
        expected = sum(other.size - self._done[other] for other in arriving)
        starving = self.starving  # before the look at the disk: what could be freed was by then
        free = free_bytes()
        leaves = self._leaves(starving) if self._evicting else 0
        if free - expected >= needed + SPARE + leaves:
            return True
        if self._evicting and (expected or not starving):
            return False
        raise _no_room(file, needed, free - expected, self._evicting)

    def _tell(self, file: HubFile, nbytes: int) -> None:
        with self._changed:
            if file in self._total:
                self._done[file] = nbytes
                self._latest = file.name

    def _check(self) -> None:
        if self._over.is_set():
            raise _Over

    def _pause(self, seconds: float) -> None:
        if self._over.wait(seconds):
            raise _Over


class _Over(Exception):
    """Nobody waits for the file any more."""


def _has_header(file: HubFile, source: Source) -> bool:
    """Whether the file begins with the header that the plan was made from, which came by itself."""
    if not file.name.endswith(".safetensors"):
        return True
    planned = {name: t for name, t in source.tensors.items() if t.file == file.name}
    try:
        return read_weight_header(file.pointer, file.name)[0] == planned
    except InputError:
        return False


def _other_header(file: HubFile) -> Resumable:
    return Resumable(
        "source_changed",
        f"The header of {file.name} of {file.repo} that the plan was made from is not the file's "
        "own: the server had sent another. Start over with --restart.",
    )


def _nothing(*args: object, **facts: object) -> None:
    pass


def _no_room(file: HubFile, needed: int, free: int, evicting: bool) -> Resumable:
    advice = (
        "Even without the downloads that are no longer needed there is no room for it"
        if evicting
        else "Free some space, move the cache by setting HF_HOME, or add --evict, which deletes "
        "downloads of this run as soon as they are no longer needed; then resume"
    )
    return Resumable(
        "disk_full",
        f"No room to download {file.name} of {file.repo} into {cache_folder()}: "
        f"{needed / 1e9:.2f} GB are needed and {free / 1e9:.2f} GB free.\n{advice}.",
    )


def _together(failures: list[ResumergeError]) -> ResumergeError:
    """One error that says it all. The run has begun, so that all of it is to be resumed after."""
    problems: list[Problem] = []
    for error in failures:
        if not isinstance(error, InputError):
            return error
        problems += error.problems
    return Resumable("source_unavailable", "\n".join(str(problem) for problem in problems))
