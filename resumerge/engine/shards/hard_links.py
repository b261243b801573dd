"""Hard links in place of shards that would be copies of weight files (``--link``)."""

from __future__ import annotations

from pathlib import Path

from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources import Source
from resumerge.sources.remote.files import remote_file
from resumerge.storage import Storage


class HardLinks:
    """A creator of hard links to weight files.

    Args:
        storage: the operations on files.
        metadata: the metadata cache. A new link changes the stamp of a cached file, so its verdict,
            intact or damaged, is recorded again.
    """

    def __init__(self, storage: Storage, metadata: MetadataCache) -> None:
        self._storage, self._metadata = storage, metadata

    def make(self, source: Source, file: str, path: Path) -> bool:
        """Create a hard link to a weight file on this machine; return whether that succeeded.

        Args:
            source: the model that the weight file belongs to.
            file: the weight file's name in the model.
            path: the path of the link; an existing file is replaced.
        """
        weight_file = source.path(file)
        if not source.part_of(file)[0].is_remote:
            return self._storage.hard_link(weight_file, path)
        etag = remote_file(source, file).etag
        verdict = self._metadata.verdict(weight_file, etag)
        is_linked = self._storage.hard_link(weight_file, path)
        if is_linked and verdict:
            self._metadata.record_verdict(weight_file, etag, verdict)
        return is_linked

    def doubt(self, source: Source, file: str) -> None:
        """Forget the verdict on a cached file, so that it is checked again before the next read."""
        self._metadata.forget_verdict(source.path(file))
