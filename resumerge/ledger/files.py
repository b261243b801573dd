"""Files that a run wrote or downloaded: beside the shards and the ledger, in the Hub's cache, in
the mirror."""

from __future__ import annotations

from resumerge.ledger.attempts import AttemptTables
from resumerge.ledger.connection import now

_WRITTEN = ("shards", "companions")


class FileTables(AttemptTables):
    """Reads and writes the tables ``companions``, ``steps``, ``downloads`` and ``mirrored``."""

    def note_companion(self, name: str, nbytes: int, checksum: str) -> None:
        """Record a file beside the shards, before it is written.

        Args:
            checksum: xxh3-128, 32 hex digits.
        """
        self._insert(
            "companions", {"name": name, "nbytes": nbytes, "checksum": checksum}, replace=True
        )

    def companions(self) -> dict[str, str]:
        """The checksum of each recorded file beside the shards, by name."""
        return {row["name"]: row["checksum"] for row in self._read("companions")}

    def written_names(self) -> list[str]:
        """Every file that the run writes to its output, by final name."""
        return [row["name"] for table in _WRITTEN for row in self._read(table, ["name"])]

    def note_step(self, key: str, pieces: int, checksum: str) -> None:
        """Record how far a step is, and what its file contains.

        Args:
            checksum: xxh3-128 of the file, 32 hex digits.
        """
        self._insert("steps", {"key": key, "pieces": pieces, "checksum": checksum}, replace=True)

    def steps(self) -> dict[str, tuple[int, str]]:
        """How many pieces of each step are done, and the checksum of its file, by key."""
        return {row["key"]: (row["pieces"], row["checksum"]) for row in self._read("steps")}

    def note_download(self, path: str, repo: str, name: str, nbytes: int, inode: int) -> None:
        """Record a file that this run downloads to the Hub's cache."""
        row = {"path": path, "repo": repo, "name": name, "nbytes": nbytes, "inode": inode}
        self._insert("downloads", {**row, "at": now()}, replace=True)

    def download_evicted(self, path: str, name: str, nbytes: int) -> None:
        """Replace the record of a download by an event: the file is gone."""
        with self._transaction():
            self._change("DELETE FROM downloads WHERE path = ?", [path])
            self.event("download_evicted", file=name, bytes=nbytes)

    def downloads(self) -> dict[str, int]:
        """The inodes of the files that this run downloaded, by path."""
        return {row["path"]: row["inode"] for row in self._read("downloads", ["path", "inode"])}

    def note_mirrored(self, name: str, nbytes: int, sha256: str) -> None:
        """Record a file of the output that is complete in the mirror."""
        row = {"name": name, "nbytes": nbytes, "sha256": sha256, "at": now()}
        self._insert("mirrored", row, replace=True)

    def forget_mirrored(self, name: str) -> None:
        """Remove the record of a mirrored file: it is missing there, or differs."""
        self._change("DELETE FROM mirrored WHERE name = ?", [name])

    def mirrored(self) -> dict[str, str]:
        """The SHA-256 of each file of the output that is in the mirror, by name."""
        return {name: sha256 for name, (_, sha256) in self.mirrored_files().items()}

    def mirrored_files(self) -> dict[str, tuple[int, str]]:
        """Bytes and SHA-256 of each file of the output that is in the mirror, by name."""
        rows = self._read("mirrored", ["name", "nbytes", "sha256"], "ORDER BY name")
        return {row["name"]: (row["nbytes"], row["sha256"]) for row in rows}
