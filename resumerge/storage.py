"""Operations that change files of outputs and ledgers, each with its durability.

A write is durable after `sync_data` or `sync_file` of its file. A new or renamed file is durable
after a sync of its folder; `rename` includes this sync. Tests replace `Storage` to inject faults.
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
"""The prefix of a scratch file's short-lived name, on systems that cannot create unnamed files."""

FULL_DISK_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The error numbers for a full disk, or a user's full quota."""

_PAGE = 4096
_TMPFS, _RAMFS = 0x01021994, 0x858458F6  # statfs(2)
_FICLONE = 0x40049409  # linux/fs.h
_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h
_NO_CLONE = {*NOT_SUPPORTED, errno.EXDEV, errno.ENOTTY, errno.EPERM, errno.ETXTBSY, errno.EBADF}
_NO_LINK = {*NOT_SUPPORTED, errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK}


class Storage:
    """The operations that change files of this machine."""

    def create(self, path: Path, nbytes: int, head: bytes, *, sparse: bool = False) -> None:
        """Create a file with its full size and its first bytes; durable afterwards.

        Args:
            path: the file; an existing file is overwritten. If the existing file has other names
                (hard links), it keeps its content under these.
            nbytes: the size of the file in bytes.
            head: the first bytes, such as a header; the other bytes are zeros.
            sparse: whether disk space is allocated when the file is written, not now.

        Raises:
            OSError: with ENOSPC, if the filesystem already knows that it has too little space.
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
        """Return a descriptor to read and write an existing file.

        A file with several names is opened only for reading, because the other names are not the
        run's.
        """
        access = os.O_RDONLY if has_other_names(path) else os.O_RDWR
        return os.open(path, access | os.O_CLOEXEC | os.O_NOFOLLOW)

    def begin(self, path: Path, *, exclusive: bool = False) -> int:
        """Return a descriptor of a new, empty file; not durable yet.

        Args:
            path: the file to create, in a folder that exists; a link in its place is refused.
            exclusive: whether the file must not exist; otherwise an existing file is emptied.

        Raises:
            FileExistsError: the file exists, with `exclusive`.
        """
        creation_flag = os.O_EXCL if exclusive else os.O_TRUNC
        return os.open(
            path, os.O_RDWR | os.O_CREAT | creation_flag | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
        )

    def scratch(self, folder: Path) -> int:
        """Return a descriptor of a new, empty, unnamed file, which disappears when it is closed."""
        with tempfile.TemporaryFile(prefix=SCRATCH, dir=folder, buffering=0) as file:
            return os.dup(file.fileno())

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of `data` at an offset in the file; not durable yet."""
        view = memoryview(data)
        while view:
            bytes_written = os.pwrite(fd, view, offset)
            view, offset = view[bytes_written:], offset + bytes_written

    def begin_sync(self, fd: int, offset: int, nbytes: int) -> None:
        """Start writing a range of a file from the page cache to the disk; not durable yet.

        Otherwise the disk would be idle until `sync_data`, which would then wait for all of the
        data. Errors are raised by `sync_data`. On systems without sync_file_range(2), nothing is
        done.
        """
        if self._sync_file_range is not None:
            self._sync_file_range(fd, offset, nbytes, _SYNC_FILE_RANGE_WRITE)

    @cached_property
    def _sync_file_range(self) -> Any:
        function = libc("sync_file_range")
        if function is not None:
            function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
        return function

    def clone(self, source: Path, fd: int) -> bool:
        """Make an open file share the blocks of another file, until either file is written to.

        Some filesystems support this (btrfs, XFS, ZFS, NFS 4.2…). It then takes neither time nor
        space (FICLONE, ioctl_ficlone(2)). It is only tried on Linux. Not durable yet.

        Args:
            source: the file whose blocks are shared.
            fd: the open file, of the same size. It is unchanged if the result is False.

        Returns:
            whether the open file is a clone now.
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
        """Create a hard link to a file; durable afterwards.

        Args:
            source: the file; if it is a symbolic link, the link's target.
            path: the path of the hard link. An existing file of this name is removed.

        Returns:
            whether the link was created. It is not if both paths are on different disks, if the
            filesystem has no hard links, or if the system denies links to files of other users.
            `path` does not exist then.
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
        """Replace one name of a file with several names by a separate copy; durable afterwards.

        Args:
            path: the name under which the file is replaced by the copy.
            fresh: the name of the copy until it is complete.
        """
        shutil.copyfile(path, fresh)
        self.sync_file(fresh)
        self.rename(fresh, path)

    def sync_data(self, fd: int) -> None:
        """Make the data that was written to an open file durable."""
        sync(fd, data_only=True)

    def sync_file(self, path: Path) -> None:
        """Make a whole file durable, by its path."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync(fd)
        finally:
            os.close(fd)

    def sync_folder(self, path: Path) -> None:
        """Make the names of a folder's files durable."""
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
        """Write a small file atomically and durably: no partly written file has the name."""
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
            OSError: the name is taken, or the filesystem does not support links.
        """
        path.symlink_to(target)
        self.sync_folder(path.parent)

    def remove(self, path: Path) -> None:
        """Remove a file if it exists."""
        path.unlink(missing_ok=True)


def has_other_names(path: Path) -> bool:
    """Return whether a path is a file that has other names (hard links)."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


def is_in_memory(folder: Path) -> bool:
    """Return whether a folder is in memory (tmpfs); False if the system cannot tell."""
    statfs = libc("statfs") if LINUX else None
    buffer = (ctypes.c_long * 64)()  # its first field is the type, a machine word
    if statfs is None or statfs(os.fsencode(folder), buffer) != 0:
        return False
    return buffer[0] & 0xFFFFFFFF in (_TMPFS, _RAMFS)


def drop_from_cache(fd: int, offset: int, nbytes: int) -> None:
    """Drop a range of a file from the page cache; pages that are not yet on the disk are kept.

    The first page is dropped even if it starts before the range. The last page is kept if it ends
    after the range. Dropping a file range by range, in order, therefore drops the whole file.
    """
    posix_fadvise = offered(os, "posix_fadvise")
    if posix_fadvise is not None:
        start = offset - offset % _PAGE
        posix_fadvise(fd, start, offset + nbytes - start, os.POSIX_FADV_DONTNEED)


def _allocate(fd: int, nbytes: int) -> None:
    """Allocate a file's disk space, if the filesystem supports it.

    `os.posix_fallocate` is not used, because it would write every block on other filesystems.
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
