"""The tables of files that a run has written, downloaded or mirrored."""

from __future__ import annotations

from dataclasses import dataclass

from resumerge.event_kinds import EventKind
from resumerge.ledger.attempts import Events
from resumerge.ledger.connection import Connection, now


@dataclass
class Companions:
    """The table ``companions``: files beside the shards."""

    _db: Connection

    def record(self, name: str, nbytes: int, checksum: str) -> None:
        """Record a file beside the shards, before it is written.

        Args:
            name: the file's path below the output's folder.
            nbytes: the file's size in bytes.
            checksum: the file's xxh3-128, 32 hex digits.
        """
        row = {"name": name, "nbytes": nbytes, "checksum": checksum}
        self._db.insert("companions", row, replace=True)

    def checksums(self) -> dict[str, str]:
        """Return the checksum of each recorded file beside the shards, by name."""
        return {row["name"]: row["checksum"] for row in self._db.read("companions")}


@dataclass
class Steps:
    """The table ``steps``: progress of each step. Its state is in a file beside the ledger."""

    _db: Connection

    def record(self, key: str, pieces: int, checksum: str) -> None:
        """Record the progress of a step, and the checksum of the file with its state.

        Args:
            key: the step's key, which also depends on the stamps of its files and on the device.
            pieces: the number of finished pieces, at least 1.
            checksum: the file's xxh3-128, 32 hex digits.
        """
        row = {"key": key, "pieces": pieces, "checksum": checksum}
        self._db.insert("steps", row, replace=True)

    def done(self) -> dict[str, tuple[int, str]]:
        """Return (number of finished pieces, checksum of the state's file) of each step, by key."""
        return {row["key"]: (row["pieces"], row["checksum"]) for row in self._db.read("steps")}


@dataclass
class Downloads:
    """The table ``downloads``: remote files that this run downloaded to a cache."""

    _db: Connection
    _events: Events

    def record(self, path: str, repo: str, name: str, nbytes: int, inode: int) -> None:
        """Record a remote file whose download has started.

        Args:
            path: the path that the complete file will have in the cache.
            repo: the model without its version: a Hub repo, or a place in a bucket.
            name: the file's name in the model.
            nbytes: the file's size in bytes.
            inode: the inode of the file, which is the same before and after completion.
        """
        row = {"path": path, "repo": repo, "name": name, "nbytes": nbytes, "inode": inode}
        self._db.insert("downloads", {**row, "at": now()}, replace=True)

    def evict(self, path: str, name: str, nbytes: int) -> None:
        """Replace the record of a download by an event, after its file was deleted."""
        with self._db.transaction():
            self._db.delete("downloads", "path = ?", [path])
            self._events.add(EventKind.DOWNLOAD_EVICTED, file=name, bytes=nbytes)

    def inodes(self) -> dict[str, int]:
        """Return the inodes of the files that this run downloaded, by path."""
        return {row["path"]: row["inode"] for row in self._db.read("downloads", ["path", "inode"])}


@dataclass
class Mirrored:
    """The table ``mirrored``: files of the output that are complete in the mirror."""

    _db: Connection

    def record(self, name: str, nbytes: int, sha256: str) -> None:
        """Record a file of the output that is complete in the mirror."""
        row = {"name": name, "nbytes": nbytes, "sha256": sha256, "at": now()}
        self._db.insert("mirrored", row, replace=True)

    def forget(self, name: str) -> None:
        """Remove the record of a file that is missing in the mirror, or differs there."""
        self._db.delete("mirrored", "name = ?", [name])

    def checksums(self) -> dict[str, str]:
        """Return the SHA-256 of each file of the output that is in the mirror, by name."""
        return {name: sha256 for name, (_, sha256) in self.files().items()}

    def files(self) -> dict[str, tuple[int, str]]:
        """Return (size in bytes, SHA-256) of each file of the output in the mirror, by name."""
        rows = self._db.read("mirrored", ["name", "nbytes", "sha256"], order_by="name")
        return {row["name"]: (row["nbytes"], row["sha256"]) for row in rows}
