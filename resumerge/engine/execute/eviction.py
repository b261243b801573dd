"""The downloads of a run: recorded in its ledger, and deleted when no unit needs them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from resumerge.ledger import Ledger, Progress
from resumerge.planning.plan import Plan
from resumerge.remote.file import RemoteFile
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.reader import SourceReader
from resumerge.sources.remote.files import remote_file


class DownloadEvictor:
    """The keeper of a run's downloads: records each download, and deletes it after its last use.

    A file belongs to the run if the run created its partial file; the inode stays the same when the
    download completes. A file that was in the cache before, or that another program stored there,
    does not belong to the run and is never deleted.

    Args:
        plan: the plan whose units decide how long each remote file is needed.
        ledger: records each download with its inode when it starts, and its deletion.
        metadata: the metadata cache; the verdict on a deleted file is removed from it.
        reader: reads the sources' files; a file is released before it is deleted.
        progress: the progress of every unit of the plan, in its order, when the attempt begins.
        evict: whether to delete a download once every unit that reads it is committed.
    """

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        metadata: MetadataCache,
        reader: SourceReader,
        progress: Sequence[Progress],
        *,
        evict: bool,
    ) -> None:
        self._plan, self._ledger, self._metadata, self._reader = plan, ledger, metadata, reader
        self._evict = evict
        self._readers: Counter[Path] = Counter()
        self._files: dict[Path, set[tuple[int, str]]] = {}
        for unit, unit_progress in zip(plan.units, progress):
            for source_number, file_name in plan.remote_files_of(unit):
                blob = remote_file(plan.sources[source_number], file_name).blob
                self._files.setdefault(blob, set()).add((source_number, file_name))
            if not unit_progress.is_complete:
                self._readers.update(self._blobs(unit.number))

    def started(self, file: RemoteFile, inode: int) -> None:
        """Record a file whose download has started, and its inode."""
        self._ledger.downloads.record(str(file.blob), file.model, file.name, file.size, inode)

    def evict_unneeded(self) -> None:
        """Delete the downloads that no uncommitted unit needs."""
        self._remove(blob for blob in self._files if not self._readers[blob])

    def committed(self, units: Iterable[int]) -> None:
        """Delete the downloads that are no longer needed, now that these units are committed."""
        unneeded: set[Path] = set()
        for unit_number in units:
            blobs = self._blobs(unit_number)
            self._readers.subtract(blobs)
            unneeded |= {blob for blob in blobs if not self._readers[blob]}
        self._remove(unneeded)

    def _blobs(self, unit: int) -> set[Path]:
        return {
            remote_file(self._plan.sources[source_number], file_name).blob
            for source_number, file_name in self._plan.remote_files_of(self._plan.units[unit])
        }

    def _remove(self, blobs: Iterable[Path]) -> None:
        if not self._evict:
            return
        inodes = self._ledger.downloads.inodes()
        for blob in blobs:
            inode = inodes.get(str(blob))
            if inode is None or not self._delete(blob, inode):
                continue
            source_number, file_name = min(self._files[blob], key=lambda file: file[1])
            size = self._plan.sources[source_number].files[file_name].size
            self._ledger.downloads.evict(str(blob), file_name, size)

    def _delete(self, blob: Path, inode: int) -> bool:
        """Delete a download of this run that no other link leads to; return whether it is gone.

        The file may already be gone: the last attempt may have been killed after it deleted the
        file and before it recorded this in the ledger.
        """
        remote_files = [
            remote_file(self._plan.sources[n], file_name) for n, file_name in self._files[blob]
        ]
        links = {link for file in remote_files for link in file.links}
        if not blob.is_file():
            return not any(os.path.lexists(link) for link in links)
        if blob.stat().st_ino != inode or _other_links(blob, links):
            return False
        for source_number, file_name in self._files[blob]:
            self._reader.release(source_number, file_name)
        for link in links:
            link.unlink(missing_ok=True)
        self._metadata.forget_verdict(blob)
        blob.unlink()
        return True


def _other_links(blob: Path, links: set[Path]) -> bool:
    """Return whether a link outside `links`, of another version of the model, leads to the blob."""
    folder = blob.parent.parent / "snapshots"
    return any(
        path.is_symlink() and path not in links and os.path.realpath(path) == os.path.realpath(blob)
        for path in folder.rglob("*")
    )
