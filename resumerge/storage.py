"""The changes to outputs and ledgers, with the durability of each operation named.

A write is durable after `sync_data` or `sync_file` of its file; a new or renamed file is durable
after a sync of its folder, which `rename` does itself. Tests replace `Storage` to inject faults.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

from resumerge.host.system import LINUX, NOT_SUPPORTED, libc, offered, sync

SCRATCH = ".resumerge-scratch-"
"""The beginning of a scratch file's short-lived name, where a file cannot begin without a name."""

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The numbers of the errors that say that a disk, or a user's part of it, is full."""

_PAGE = 4096
_TMPFS, _RAMFS = 0x01021994, 0x858458F6  # statfs(2)
_FICLONE = 0x40049409  # linux/fs.h
_SYNC_FILE_RANGE_WRITE = 2  # the same
_NO_CLONE = {*NOT_SUPPORTED, errno.EXDEV, errno.ENOTTY, errno.EPERM, errno.ETXTBSY, errno.EBADF}
_NO_LINK = {*NOT_SUPPORTED, errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK}


class Storage:
    """The operations on files of this machine."""

    def create(self, path: Path, nbytes: int, head: bytes, *, sparse: bool = False) -> None:
        """Create a file of its full size that begins with `head`; durable afterwards.

        Args:
            path: the file; one that exists is overwritten. One that has other names, too, stays as
                it is under these.
            nbytes: the size of the file in bytes.
            head: the first bytes.
            sparse: whether its space is allocated as it is written, not now.

        Raises:
            OSError: ENOSPC if the filesystem knows already that the space is missing.
        """
        if has_other_names(path):
            self.remove(path)
        fd = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
        )
        try:
            if not sparse:
                _allocate(fd, nbytes)
            os.ftruncate(fd, nbytes)
            self.write(fd, head, 0)
            self.sync_data(fd)
        finally:
            os.close(fd)
        self.sync_folder(path.parent)

    def open(self, path: Path) -> int:
        """Return a descriptor to read and write a file that exists.

        A file with several names can only be read by it: it is also somebody else's.
        """
        how = os.O_RDONLY if has_other_names(path) else os.O_RDWR
        return os.open(path, how | os.O_CLOEXEC | os.O_NOFOLLOW)

    def begin(self, path: Path, *, exclusive: bool = False) -> int:
        """Return a descriptor of a new, empty file; nothing is durable yet.

        Args:
            path: the file.
            exclusive: whether the file must not exist; else one that exists is emptied.

        Raises:
            FileExistsError: the file exists, with `exclusive`.
        """
        how = os.O_EXCL if exclusive else os.O_TRUNC
        return os.open(path, os.O_RDWR | os.O_CREAT | how | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)

    def scratch(self, folder: Path) -> int:
        """Return a descriptor of a new, empty file without a name, gone when it is closed."""
        with tempfile.TemporaryFile(prefix=SCRATCH, dir=folder, buffering=0) as file:
            return os.dup(file.fileno())

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of `data` at an offset of the file; not durable yet."""
        view = memoryview(data)
        while view:
            count = os.pwrite(fd, view, offset)
            view, offset = view[count:], offset + count

    def begin_sync(self, fd: int, offset: int, nbytes: int) -> None:
        """Have the system write a range of a file to the disk from now on; not durable yet.

        Otherwise the disk idles until `sync_data`, which then waits for all of it. Errors are
        raised by that. Where there is no sync_file_range(2), nothing is done.
        """
        if self._sync_file_range is not None:
            self._sync_file_range(fd, offset, nbytes, _SYNC_FILE_RANGE_WRITE)

    @cached_property
    def _sync_file_range(self) -> Any:
        found = libc("sync_file_range")
        if found is not None:
            found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
        return found

    def clone(self, source: Path, fd: int) -> bool:
        """Make an open file share the blocks of another one, until either is written.

        On filesystems that can (btrfs, XFS, ZFS, NFS 4.2…), that takes neither time nor space
        (FICLONE, ioctl_ficlone(2)); elsewhere than on Linux it is not tried. Not durable yet.

        Args:
            source: the other file.
            fd: the open file, of the same size. If it is not changed, it stays as it is.

        Returns:
            whether the file is a clone now.
        """
        if not LINUX:
            return False
        with source.open("rb") as stream:
            try:
                fcntl.ioctl(fd, _FICLONE, stream.fileno())
            except OSError as error:
                if error.errno in _NO_CLONE:
                    return False
                raise
        return True

    def hard_link(self, source: Path, path: Path) -> bool:
        """Make `path` a name of the file of another path; durable afterwards.

        Args:
            source: the other path; what a symbolic link leads to is meant, and not the link.
            path: the new name. A file that has it loses it.

        Returns:
            whether it is one now: both may be on different disks, the filesystem may have no hard
            links, and the system may not let us link to files of others. `path` is free then.
        """
        self.remove(path)
        try:
            os.link(source.resolve(), path)
        except OSError as error:
            if error.errno in _NO_LINK:
                return False
            raise
        self.sync_folder(path.parent)
        return True

    def part(self, path: Path, fresh: Path) -> None:
        """Give a name of a file that has others a copy of its own; durable afterwards.

        Args:
            path: the name.
            fresh: the name of the copy until it is complete.
        """
        shutil.copyfile(path, fresh)
        self.sync_file(fresh)
        self.rename(fresh, path)

    def sync_data(self, fd: int) -> None:
        """Make the data written to an open file durable."""
        sync(fd, data_only=True)

    def sync_file(self, path: Path) -> None:
        """Make a whole file durable, by its name."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync(fd)
        finally:
            os.close(fd)

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable."""
        try:
            self.sync_file(path)
        except OSError as error:
            if error.errno not in NOT_SUPPORTED:
                raise

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, replacing any file that has the name; durable afterwards."""
        self.replace(source, target)
        self.sync_folder(target.parent)

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file, replacing any file that has the name; not durable yet."""
        source.replace(target)

    def write_file(self, path: Path, data: bytes) -> None:
        """Write a small file: it appears whole and durable under its name, or not at all."""
        fresh = path.with_name(path.name + ".partial")
        self.create(fresh, len(data), data)
        self.rename(fresh, path)

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents; durable afterwards."""
        if path.is_dir():
            return
        self.make_folder(path.parent)
        self.add_folder(path)
        self.sync_folder(path.parent)

    def add_folder(self, path: Path) -> None:
        """Create a folder in an existing one; not durable yet."""
        path.mkdir(exist_ok=True)

    def link(self, target: Path, path: Path) -> None:
        """Create a symbolic link `path` to `target`; durable afterwards.

        Raises:
            OSError: the name is taken, or the filesystem has no links.
        """
        path.symlink_to(target)
        self.sync_folder(path.parent)

    def remove(self, path: Path) -> None:
        """Remove a file if it exists."""
        path.unlink(missing_ok=True)


def has_other_names(path: Path) -> bool:
    """Return whether a path leads to a file that has other names as well (hard links)."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink > 1


def is_in_memory(folder: Path) -> bool:
    """Return whether a folder is in memory (tmpfs); False where the system does not say."""
    statfs = libc("statfs") if LINUX else None
    found = (ctypes.c_long * 64)()  # its first field, a machine word, is the type
    if statfs is None or statfs(os.fsencode(folder), found) != 0:
        return False
    return found[0] & 0xFFFFFFFF in (_TMPFS, _RAMFS)


def drop_from_cache(fd: int, offset: int, nbytes: int) -> None:
    """Drop a range of a file from the page cache; pages that are not on disk yet stay.

    A page shared with the bytes before the range is dropped too, one shared with the bytes after it
    is not: dropping a file range by range, in order, drops all of it.
    """
    advise = offered(os, "posix_fadvise")
    if advise is not None:
        start = offset - offset % _PAGE
        advise(fd, start, offset + nbytes - start, os.POSIX_FADV_DONTNEED)


def _allocate(fd: int, nbytes: int) -> None:
    """Allocate a file's space, if the filesystem can.

    `os.posix_fallocate` would write every block where the filesystem cannot.
    """
    fallocate = libc("fallocate")
    if nbytes and fallocate is not None:
        fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        while fallocate(fd, 0, 0, nbytes) != 0:
            code = ctypes.get_errno()
            if code in NOT_SUPPORTED:
                break
            if code != errno.EINTR:
                raise OSError(code, os.strerror(code))
