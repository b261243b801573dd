"""The operations on a mirror while a run merges, one at a time.

Each operation leaves the mirror consistent. Only one thread calls them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from resumerge.errors import Reason, Resumable
from resumerge.event_kinds import EventKind
from resumerge.ledger import Ledger
from resumerge.mirror.companions import Companions, upload_companions
from resumerge.mirror.conflicts import ConflictResolver
from resumerge.mirror.lease import Lease
from resumerge.mirror.manifest import is_same_model, manifest_of, remove_metadata, write_manifest
from resumerge.mirror.names import MANIFEST_FILE, SnapshotName, snapshot_names, task_names
from resumerge.mirror.snapshots import write_snapshot
from resumerge.mirror.stores.base import Store
from resumerge.mirror.transfer import TransferProgress
from resumerge.storage import Storage


class MirrorWriter:
    """The writer of one attempt of a run to its mirror.

    Every operation raises `OSError` if the mirror cannot be used now, and can then be repeated.

    Args:
        store: the mirror.
        lease: the lease of the mirror.
        ledger: the ledger of the run.
        out: the folder of the sealed shards.
        storage: makes the changes to that folder.
        note: called with messages for the user.
        progress: is told the size of each upload.
        moved: called with the number of bytes that were moved; may raise to stop.

    Attributes:
        named_in_snapshot: the files that the newest snapshot of this attempt names; None before the
            attempt has written one. Until then nothing is deleted, even if the ledger says that it
            is mirrored.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        ledger: Ledger,
        out: Path,
        storage: Storage,
        note: Callable[[str], None],
        progress: TransferProgress,
        moved: Callable[[int], None],
    ) -> None:
        self.named_in_snapshot: set[str] | None = None
        self._store, self._lease, self._ledger, self._out = store, lease, ledger, out
        self._storage, self._note = storage, note
        self._progress, self._moved = progress, moved
        self._conflicts = ConflictResolver(store, self._report_conflict, moved)
        self._snapshots: list[SnapshotName] | None = None
        """The snapshots in the mirror; None if they must be listed."""
        self._lock = threading.Lock()
        self._superfluous: set[str] = set()
        """The files of tasks whose shards are in the ledger; removed once a snapshot has them."""
        self._manifests: set[bytes] = set()
        """The manifests that are written, or may be: the answer of the store can be lost."""

    # Queries: which operation is due

    @property
    def snapshot_names_other_files(self) -> bool:
        """Whether the newest snapshot names other files than the ledger, or none is written yet."""
        return (
            self.named_in_snapshot is None
            or self.named_in_snapshot != self._ledger.mirrored.checksums().keys()
        )

    @property
    def superfluous(self) -> tuple[str, ...]:
        """The files of tasks that can be removed, once a snapshot names their shards."""
        with self._lock:
            return tuple(self._superfluous)

    def add_superfluous(self, names: Collection[str]) -> None:
        """Note files of tasks whose shards are in the ledger; any thread may call this."""
        with self._lock:
            self._superfluous.update(names)

    def deletable(self) -> list[str]:
        """Return the sealed local shards that the newest snapshot of this attempt names."""
        sealed = self._ledger.shards.sealed()
        return [
            name
            for name in sealed
            if name in (self.named_in_snapshot or ()) and self.is_local(name)
        ]

    def is_local(self, name: str) -> bool:
        """Return whether a shard is on this machine."""
        return (self._out / name).is_file()

    # The operations

    def write_snapshot(self) -> None:
        """Write a snapshot that names the mirrored files, without those that have disappeared."""
        older, self._snapshots = self._snapshots, None
        if older is None:
            listed, _ = self.list_and_forget_missing()
            older = snapshot_names(listed)
            # Shards of tasks with older tokens are adopted by now, and the snapshot names them.
            stale = {task.name for task in task_names(listed) if task.token < self._lease.token}
            self.add_superfluous(stale)
        named = self._ledger.mirrored.checksums()
        self._snapshots = [write_snapshot(self._store, self._ledger, self._lease.token, older)]
        # This raises if a machine has taken over, which then has not read this snapshot.
        self.list_and_forget_missing()
        self.named_in_snapshot = set(named)

    def remove(self, names: Sequence[str]) -> None:
        """Remove superfluous files of tasks."""
        self._store.put({}, names)
        with self._lock:
            self._superfluous.difference_update(names)

    def list_and_forget_missing(self) -> tuple[Mapping[str, int], bool]:
        """List the mirror, and forget in the ledger the run's files that are gone or resized.

        Returns:
            the files in the mirror with their sizes in bytes, and whether some were forgotten.

        Raises:
            Resumable: another machine has taken over. If it did so before the latest snapshot was
                written, it does not know the files that the snapshot names.
        """
        # Read the ledger before the mirror: tasks upload shards and record them meanwhile.
        mirrored = self._ledger.mirrored.files()
        listed = self._store.list()
        self._lease.check_listed(listed)
        missing = [name for name, (nbytes, _) in mirrored.items() if listed.get(name) != nbytes]
        for name in missing:
            self._ledger.mirrored.forget(name)
            self._ledger.events.add(EventKind.MIRROR_LOST_FILE, mirror=self._store.url, name=name)
        return listed, bool(missing)

    def upload(self, name: str) -> None:
        """Upload a shard, and record it."""
        path = self._out / name
        if not path.is_file():
            raise Resumable(
                Reason.SHARD_LOST,
                f"{name} is missing both from {self._out} and from the {self._store.place}. "
                "To compute it again, resume",
            )
        nbytes = path.stat().st_size
        self._progress.expect(nbytes)
        self._conflicts.make_way(name, path, self._store.list().get(name))
        sha256 = self._store.upload(name, path, self._moved)
        self._moved(0)
        self._ledger.mirrored.note(name, nbytes, sha256)

    def delete_local(self) -> None:
        """Delete local shards that the newest snapshot names."""
        for name in self.deletable():
            self._storage.remove(self._out / name)

    def finish(self, companions: Callable[[], Companions]) -> bool:
        """Complete the model: the files beside the shards, then the manifest.

        Args:
            companions: makes the files beside the shards.

        Returns:
            True; False if a shard was missing, which has to be uploaded first.
        """
        _, some_are_missing = self.list_and_forget_missing()
        if some_are_missing:
            return False
        files = self._ledger.mirrored.files()
        for name, nbytes, sha256 in upload_companions(
            self._store, companions(), self._conflicts, self._moved
        ):
            files[name] = (nbytes, sha256)
        self._lease.check()
        self._lease.stop()
        manifest = manifest_of(self._ledger, files, self._lease.token)
        self._manifests.add(manifest)
        write_manifest(self._store, manifest, self._lease.token, files)
        return True

    def finish_if_manifest_is_there(self) -> bool:
        """Return whether the manifest was written although the answer was lost.

        If so, the metadata that is left is removed. The lease cannot be checked for that, because
        it was removed with the metadata.
        """
        if not self._manifests:
            return False
        try:
            manifest = self._store.get(MANIFEST_FILE)
            if not any(is_same_model(manifest, written) for written in self._manifests):
                return False
        except FileNotFoundError:
            return False
        remove_metadata(self._store, self._lease.token)
        return True

    def _report_conflict(self, name: str, now: str) -> None:
        """Tell the user of a file that is not the run's."""
        if name == now:
            self._ledger.events.add(EventKind.FILE_KEPT, name=name, mirror=self._store.url)
            self._note(
                f"{name} in the {self._store.place} was not written by this run and stays unchanged"
            )
        else:
            self._ledger.events.add(
                EventKind.FILE_SET_ASIDE, name=name, now=now, mirror=self._store.url
            )
            self._note(
                f"{name} in the {self._store.place} was not written by this run: it is renamed to "
                f"{now}"
            )
