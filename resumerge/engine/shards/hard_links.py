"""Shards that are other names of the weight files that they are copies of (``--link``)."""

from __future__ import annotations

from pathlib import Path

from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources import Source
from resumerge.sources.remote.files import remote_file
from resumerge.storage import Storage


class HardLinks:
    """Makes hard links to weight files.

    Args:
        storage: the operations on files.
        metadata: what is known of cached files: one that is intact still is when it has a name
            more, which looks like a change of it.
    """

    def __init__(self, storage: Storage, metadata: MetadataCache) -> None:
        self._storage, self._metadata = storage, metadata

    def make(self, source: Source, file: str, path: Path) -> bool:
        """Make `path` a name of a weight file that is here; return whether it is one now.

        Args:
            source: the model.
            file: the file's name in it.
            path: the name, which another file loses.
        """
        target = source.path(file)
        if not source.part_of(file)[0].is_remote:
            return self._storage.hard_link(target, path)
        etag = remote_file(source, file).etag
        verdict = self._metadata.verdict(target, etag)
        made = self._storage.hard_link(target, path)
        if made and verdict:
            self._metadata.record_verdict(target, etag, verdict)
        return made

    def doubt(self, source: Source, file: str) -> None:
        """Have a cached file compared with its hash before it is read again."""
        self._metadata.forget_verdict(source.path(file))
