"""A disk that crashes at the n-th operation and may lose what was not synced.

It replaces the calls of `os` that change files in this process, so that it sees everything that the
engine does. SQLite's files are left to SQLite (a transaction that returned is durable, any other
one does not exist); the begin and the end of a commit are operations like any other.

What a power cut leaves follows POSIX to the letter: bytes are durable after fsync or fdatasync of
their file, names (created, renamed, removed) after fsync of their folder, and nothing else is.
"""

# It is about the functions of os that pathlib calls.
# ruff: noqa: PTH102, PTH104, PTH105, PTH106, PTH108, PTH115

from __future__ import annotations

import errno
import json
import os
import random
import signal
import stat
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from states import Inode, copy_folders, digest_of, inode_of

from resumerge.ledger.connection import Connection

PAGE = 4096
REAL = {
    name: getattr(os, name)
    for name in (
        *("open", "pwrite", "ftruncate", "fsync", "fdatasync"),
        *("rename", "replace", "unlink", "remove", "mkdir", "rmdir"),
    )
}
MODES = ("kill", "power", "torn", "lying", "full", "io", "pause", "stop")
"""kill: SIGKILL, the page cache lives on. power: everything that was not synced is lost. torn: a
random part of that is lost, page by page. lying: some writes of this attempt are lost, synced or
not, and nothing else. full: there is no more space from here on. io: this one operation fails.
pause: SIGSTOP, until another process sends SIGCONT. stop: SIGTERM."""

TAKES_SPACE = ("create", "write", "resize", "make folder")

Place = Callable[[Path], Path]
"""A function that returns the place of a file: on the disk itself, or in a copy."""


@dataclass
class Change:
    """Bytes of a file before they were changed."""

    offset: int
    before: bytes
    size: int

    def overlaps(self, other: Change) -> bool:
        """Return whether both changed the same bytes."""
        ends = self.offset + len(self.before), other.offset + len(other.before)
        return self.offset < ends[1] and other.offset < ends[0]


@dataclass
class Name:
    """A change of a folder, with what undoes it.

    Args:
        folders: the inodes of the folders that must be synced before the change is durable.
        gone: the folder that it removed, if any; its content does not matter once it is durable.
    """

    folders: set[Inode]
    undo: Callable[[Place], None]
    gone: Inode | None = None


@dataclass
class Disk:
    """A disk that watches one folder.

    Args:
        root: the folder; operations elsewhere neither count nor fail.
        graveyard: a folder on the same filesystem, for files that a power cut brings back.
        log: a file that gets what was counted and written, also before a crash.
        at: the operation to crash at, before it is done; None never does.
        mode: one of `MODES`.
        seed: the seed of the draw of what a torn power cut leaves.
        points: operations at which a copy of what a crash would leave is made.
        states: a folder for these copies, each named by a digest of its content.
    """

    root: Path
    graveyard: Path
    log: Path
    at: int | None = None
    mode: str = "kill"
    seed: int = 0
    points: Collection[int] = ()
    states: Path = Path()
    count: int = 0
    kinds: list[str] = field(default_factory=list)
    written: list[tuple[str, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._guard = threading.RLock()
        self._changes: dict[Inode, list[Change]] = defaultdict(list)
        self._handles: dict[Inode, int] = {}
        self._names: list[Name] = []
        self._graves = 0
        self._copied: list[tuple[int, str, int]] = []
        self._full = False

    def install(self) -> None:
        """Put this disk below the process, for the rest of its life."""
        for name in REAL:
            setattr(os, name, getattr(self, name))
        # Older Pythons bind the functions of os when pathlib is imported.
        Path.replace = lambda a, b: (os.replace(a, b), Path(b))[1]  # type: ignore
        Path.rename = lambda a, b: (os.rename(a, b), Path(b))[1]  # type: ignore
        Path.unlink = _unlink  # type: ignore
        Path.rmdir = lambda a: os.rmdir(a)  # type: ignore
        Path.mkdir = _mkdir  # type: ignore
        begin = Connection.transaction

        @contextmanager
        def transaction(connection: Connection) -> Iterator[None]:
            if connection._db.conn.in_transaction:
                with begin(connection):
                    yield
                return
            with ExitStack() as whole:  # a copy that another thread makes has all of it, or nothing
                with begin(connection):
                    yield
                    whole.enter_context(self._guard)
                    self._point("before commit", connection.path)
                self._point("after commit", connection.path)

        Connection.transaction = transaction  # type: ignore

    def report(self) -> None:
        """Write the counts to the log."""
        data = json.dumps(
            {
                "pid": os.getpid(),
                "kinds": self.kinds,
                "written": self.written,
                "states": self._copied,
            }
        )
        fresh = self.log.with_suffix(".fresh")
        fd = REAL["open"](fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(fd, data.encode())
        os.close(fd)
        REAL["rename"](fresh, self.log)

    # The operations

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        where = self._where(path, dir_fd)
        if where is None or not flags & (os.O_CREAT | os.O_TRUNC):
            return REAL["open"](path, flags, mode, dir_fd=dir_fd)
        with self._guard:
            self._point("create", where)
            known = where.exists()
            before = where.read_bytes() if known else b""
            fd = REAL["open"](path, flags, mode, dir_fd=dir_fd)
            self._change(fd, Change(0, before, len(before)))
            if not known:
                self._name({where.parent}, lambda at: REAL["unlink"](at(where)))
            return fd

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        where = self._where_fd(fd)
        if where is None:
            return REAL["pwrite"](fd, data, offset)
        with self._guard:
            self._point("write", where)
            size = os.fstat(fd).st_size
            self._change(fd, Change(offset, os.pread(fd, len(data), offset), size))
            count = REAL["pwrite"](fd, data, offset)
            self.written.append((where.name, offset, count))
            return count

    def ftruncate(self, fd: int, length: int) -> None:
        where = self._where_fd(fd)
        if where is None:
            return REAL["ftruncate"](fd, length)
        with self._guard:
            self._point("resize", where)
            size = os.fstat(fd).st_size
            cut = os.pread(fd, size - length, length) if size > length else b""
            self._change(fd, Change(length, cut, size))
            REAL["ftruncate"](fd, length)

    def fsync(self, fd: int) -> None:
        self._sync(fd, REAL["fsync"])

    def fdatasync(self, fd: int) -> None:
        self._sync(fd, REAL["fdatasync"])

    def rename(self, src: Any, dst: Any) -> None:
        source, target = self._where(src), self._where(dst)
        if source is None or target is None:
            return REAL["rename"](src, dst)
        with self._guard:
            self._point("rename", target)
            grave = self._bury(target)
            REAL["rename"](src, dst)

            def undo(at: Place) -> None:
                REAL["rename"](at(target), at(source))
                if grave:
                    REAL["rename"](at(grave), at(target))

            self._name({source.parent, target.parent}, undo)

    replace = rename

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        where = self._where(path, dir_fd)
        if where is None or not where.exists():
            return REAL["unlink"](path, dir_fd=dir_fd)
        with self._guard:
            self._point("remove", where)
            grave = self._bury(where)
            REAL["unlink"](path, dir_fd=dir_fd)
            if grave:
                self._name({where.parent}, lambda at: REAL["rename"](at(grave), at(where)))

    remove = unlink

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        where = self._where(path, dir_fd)
        if where is None:
            return REAL["mkdir"](path, mode, dir_fd=dir_fd)
        with self._guard:
            self._point("make folder", where)
            REAL["mkdir"](path, mode, dir_fd=dir_fd)
            self._name({where.parent}, lambda at: _remove_tree(at(where)))

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        where = self._where(path, dir_fd)
        if where is None:
            return REAL["rmdir"](path, dir_fd=dir_fd)
        with self._guard:
            self._point("remove folder", where)
            gone = inode_of(where)
            REAL["rmdir"](path, dir_fd=dir_fd)
            self._name({where.parent}, lambda at: REAL["mkdir"](at(where)), gone)

    def _sync(self, fd: int, sync: Callable[[int], None]) -> None:
        where = self._where_fd(fd)
        if where is None:
            return sync(fd)
        with self._guard:
            self._point("sync", where)
            sync(fd)
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                self._folder_is_durable(inode_of(fd))
            elif self.mode != "lying":
                self._changes.pop(inode_of(fd), None)

    # What was not synced

    def _change(self, fd: int, change: Change) -> None:
        key = inode_of(fd)
        if key not in self._handles:
            self._handles[key] = os.dup(fd)
        self._changes[key].append(change)

    def _name(
        self, folders: set[Path], undo: Callable[[Place], None], gone: Inode | None = None
    ) -> None:
        self._names.append(Name({inode_of(folder) for folder in folders}, undo, gone))

    def _folder_is_durable(self, folder: Inode) -> None:
        todo = [folder]
        while todo:
            folder = todo.pop()
            for name in self._names:
                if folder in name.folders:
                    name.folders.discard(folder)
                    todo += [name.gone] if name.gone and not name.folders else []
        self._names = [name for name in self._names if name.folders]

    def _bury(self, path: Path) -> Path | None:
        """Give a file that loses its name another one, so that this can be undone."""
        if self.mode not in ("power", "torn") or not path.is_file():
            return None
        self._graves += 1
        grave = self.graveyard / f"{os.getpid()}-{self._graves}"
        os.link(path, grave)
        return grave

    def _lose(self, seed: int, handles: Mapping[Inode, int], at: Place) -> None:
        """Undo what was not synced: all of it, or a part that is drawn.

        Args:
            seed: the seed of the draw.
            handles: an open file for each that was changed and has a name still.
            at: the place of the files.
        """
        draw = random.Random(seed)
        if self.mode == "lying":
            self._forget_writes(draw, handles)
            return
        torn = self.mode == "torn"
        for key, changes in self._changes.items():
            if key in handles:
                self._undo_bytes(handles[key], changes, draw if torn else None)
        kept = draw.randint(0, len(self._names)) if torn else 0
        for name in reversed(self._names[kept:]):
            name.undo(at)

    def _keep_state(self) -> None:
        """Copy what a crash would leave now."""
        copy, lost = self.states / "root", self.states / "lost"
        copies = copy_folders({self.root: copy, self.graveyard: lost})
        with ExitStack() as opened:
            handles = {}
            for key in self._changes.keys() & copies.keys():
                handles[key] = REAL["open"](copies[key], os.O_RDWR)
                opened.callback(os.close, handles[key])

            def at(path: Path) -> Path:
                if path.is_relative_to(self.root):
                    return copy / path.relative_to(self.root)
                return lost / path.relative_to(self.graveyard)

            if self.mode != "kill":
                self._lose(self.count, handles, at)
        _remove_tree(lost)
        kept = self.states / digest_of(copy)
        if kept.exists():
            _remove_tree(copy)
        else:
            REAL["rename"](copy, kept)
        self._copied.append((self.count, kept.name, len(self.written)))

    def _forget_writes(self, draw: random.Random, handles: Mapping[Inode, int]) -> None:
        """Undo up to three writes of tensors that were not overwritten since."""
        writes = [
            (handles[key], change)
            for key, changes in self._changes.items()
            if key in handles
            for number, change in enumerate(changes)
            if change.before and not any(map(change.overlaps, changes[number + 1 :]))
        ]
        for fd, change in draw.sample(writes, min(len(writes), draw.randint(1, 3))):
            REAL["pwrite"](fd, change.before, change.offset)

    def _undo_bytes(self, fd: int, changes: list[Change], draw: random.Random | None) -> None:
        """Undo changes of bytes, the newest first.

        In a torn power cut, a page keeps its oldest changes, as many as are drawn.
        """
        pages: Counter[int] = Counter()
        pieces = []
        for change in changes:
            for piece in _pieces(change):
                pages[piece.offset // PAGE] += 1
                pieces.append((piece, pages[piece.offset // PAGE]))
        kept = {page: draw.randint(0, count) if draw else 0 for page, count in pages.items()}
        for piece, number in reversed(pieces):
            if number > kept[piece.offset // PAGE]:
                REAL["pwrite"](fd, piece.before, piece.offset)
        if draw is None or draw.random() < 0.5:
            REAL["ftruncate"](fd, changes[0].size)

    # The crash

    def _point(self, kind: str, where: Path) -> None:
        """Count an operation that is about to be done; crash if it is the one."""
        with self._guard:
            self.count += 1
            self.kinds.append(f"{kind} {where.name}")
            hit = self.count == self.at
            if self.count in self.points:
                self._keep_state()
            if self.mode == "full":
                self._full |= hit
                if self._full and kind in TAKES_SPACE:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(where))
            elif self.mode == "io":
                if hit and "commit" not in kind:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), str(where))
            elif hit and self.mode == "stop":
                os.kill(os.getpid(), signal.SIGTERM)
            elif hit and self.mode == "pause":
                self.report()
                os.kill(os.getpid(), signal.SIGSTOP)
            elif hit:
                self._crash()

    def _crash(self) -> None:
        """Kill this process, which holds the guard: no other thread changes anything any more."""
        self.report()
        if self.mode != "kill":
            self._lose(self.seed, self._handles, lambda path: path)
        os.kill(os.getpid(), signal.SIGKILL)

    def _where(self, path: Any, dir_fd: int | None = None) -> Path | None:
        """Return the absolute path of a watched file; None for any other file."""
        folder = Path(os.readlink(f"/proc/self/fd/{dir_fd}")) if dir_fd is not None else Path()
        found = (folder / os.fspath(path)).absolute()
        watched = self.root in (found, *found.parents) and found.name != "lock"
        return found if watched else None

    def _where_fd(self, fd: int) -> Path | None:
        return self._where(os.readlink(f"/proc/self/fd/{fd}"))


def _pieces(change: Change) -> Iterator[Change]:
    """Yield the parts of a change, cut where pages end."""
    offset, before = change.offset, change.before
    while before:
        room = PAGE - offset % PAGE
        yield Change(offset, before[:room], change.size)
        offset, before = offset + room, before[room:]


def _remove_tree(path: Path) -> None:
    for inside in path.iterdir():
        if inside.is_dir():
            _remove_tree(inside)
        else:
            REAL["unlink"](inside)
    REAL["rmdir"](path)


def _unlink(path: Path, missing_ok: bool = False) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        if not missing_ok:
            raise


def _mkdir(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
    try:
        os.mkdir(path, mode)
    except FileNotFoundError:
        if not parents:
            raise
        _mkdir(path.parent, parents=True, exist_ok=True)
        _mkdir(path, mode, parents=False, exist_ok=exist_ok)
    except FileExistsError:
        if not exist_ok or not path.is_dir():
            raise
