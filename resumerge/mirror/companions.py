"""The upload of the companions to a mirror, after all shards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from resumerge.mirror.conflicts import ConflictResolver
from resumerge.mirror.stores.base import Moved, Store

SMALL = 4 << 20
"""The most bytes that are written by one `put`. A larger file is written by `Store.upload`."""

Companions = Iterable[tuple[str, "bytes | Path"]]
"""The files beside the shards, config.json last: pairs of a name and its bytes or local file."""


def upload_companions(
    store: Store, companions: Companions, conflicts: ConflictResolver, moved: Moved
) -> Iterator[tuple[str, int, str]]:
    """Upload the files beside the shards, and replace older versions from an earlier attempt.

    A file that the mirror already has with the same content is not written again: a manifest may
    list it, and not every store replaces a file in one step.

    Args:
        store: the store of the mirror, which already has all shards.
        companions: the files to upload, in this order; they are read once.
        conflicts: keeps the names of these files free.
        moved: called with the number of bytes that were moved; may raise to stop.

    Yields:
        the name, size in bytes and SHA-256 of each file.

    Raises:
        Resumable: a file of the user has one of the names.
        OSError: the mirror cannot be used now.
    """
    mirror_sizes = store.list()
    for group in _groups(companions):
        moved(0)
        group = {
            name: content
            for name, content in group.items()
            if conflicts.make_way(name, content, mirror_sizes.get(name))
        }
        small_files = {name: data for name, data in group.items() if isinstance(data, bytes)}
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in small_files.items()}
        changed_files = {
            name: data
            for name, data in small_files.items()
            if mirror_sizes.get(name) != len(data) or store.sha256(name, moved) != hashes[name]
        }
        if changed_files:
            store.put(changed_files)
            moved(sum(map(len, changed_files.values())))
        for name, data in small_files.items():
            yield name, len(data), hashes[name]
        for name, path in group.items():
            if isinstance(path, Path):
                yield name, path.stat().st_size, store.upload(name, path, moved)


def _groups(companions: Companions) -> Iterator[dict[str, bytes | Path]]:
    """Yield the files in order: each large one alone, small ones together up to `SMALL` bytes."""
    group: dict[str, bytes | Path] = {}
    group_bytes = 0
    for name, content in companions:
        if isinstance(content, Path) and content.stat().st_size <= SMALL:
            content = content.read_bytes()
        content_bytes = len(content) if isinstance(content, bytes) else SMALL
        if group and group_bytes + content_bytes > SMALL:
            yield group
            group, group_bytes = {}, 0
        group[name] = content.resolve() if isinstance(content, Path) else content
        group_bytes += content_bytes
    if group:
        yield group
