"""The operations on a mirror while a run merges.

Each operation leaves the mirror consistent. One thread calls them, one after the other.
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
    """The operations of one attempt on its mirror.

    Every operation raises `OSError` if the mirror cannot be used now. The caller can repeat it.

    Args:
        store: the store of the mirror, to which nothing else in this process writes.
        lease: the lease, which this process holds; `finish` stops its renewals.
        ledger: the ledger of the run, which records the files that the mirror has.
        out: the folder of the sealed shards.
        storage: deletes files in that folder.
        note: called with messages for the user.
        progress: receives the size of each upload.
        moved: called with the number of bytes that were moved; may raise to stop.

    Attributes:
        named_in_snapshot: the names of the mirrored files in the newest snapshot of this attempt;
            None before its first snapshot. Until then no local shard is deleted, even if the ledger
            records that it is mirrored.
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
        """The files of tasks whose shards the ledger records; removed after the next snapshot."""
        self._manifests: set[bytes] = set()
        """The manifests that were sent. Each may be written, even if the store's response was lost.
        """

    # Queries: which operation is due

    @property
    def snapshot_names_other_files(self) -> bool:
        """Whether a snapshot is due: the first one, or because the mirrored files have changed."""
        return (
            self.named_in_snapshot is None
            or self.named_in_snapshot != self._ledger.mirrored.checksums().keys()
        )

    @property
    def superfluous(self) -> tuple[str, ...]:
        """The names of tasks' files that can be removed after the next snapshot."""
        with self._lock:
            return tuple(self._superfluous)

    def add_superfluous(self, names: Collection[str]) -> None:
        """Add names of tasks' files whose shards the ledger records. Any thread may call this."""
        with self._lock:
            self._superfluous.update(names)

    def deletable(self) -> list[str]:
        """Return the names of local sealed shards that are in this attempt's newest snapshot."""
        shards = self._ledger.shards.sealed()
        return [
            name
            for name in shards
            if name in (self.named_in_snapshot or ()) and self.is_local(name)
        ]

    def is_local(self, name: str) -> bool:
        """Return whether a shard is on this machine."""
        return (self._out / name).is_file()

    # The operations

    def write_snapshot(self) -> None:
        """Write a snapshot of the ledger that names the files that are still in the mirror."""
        older_snapshots, self._snapshots = self._snapshots, None
        if older_snapshots is None:
            mirror_sizes, _ = self.list_and_forget_missing()
            older_snapshots = snapshot_names(mirror_sizes)
            # Shards of tasks with older tokens have been adopted; the snapshot names them.
            stale_task_files = {
                task.name for task in task_names(mirror_sizes) if task.token < self._lease.token
            }
            self.add_superfluous(stale_task_files)
        mirrored_checksums = self._ledger.mirrored.checksums()
        self._snapshots = [
            write_snapshot(self._store, self._ledger, self._lease.token, older_snapshots)
        ]
        # This raises if another machine took over before it could read this snapshot.
        self.list_and_forget_missing()
        self.named_in_snapshot = set(mirrored_checksums)

    def remove(self, names: Sequence[str]) -> None:
        """Remove files of tasks from the mirror and from `superfluous`."""
        self._store.put({}, names)
        with self._lock:
            self._superfluous.difference_update(names)

    def list_and_forget_missing(self) -> tuple[Mapping[str, int], bool]:
        """List the mirror, and remove files from the ledger that are missing or have another size.

        Returns:
            the size in bytes of each file in the mirror, by name, and whether the ledger changed.

        Raises:
            Resumable: another machine has taken over. If it took over before the latest snapshot
                was written, it does not know the files that this snapshot names.
        """
        # The ledger is read before the mirror, because tasks upload shards in the meantime and
        # record them afterwards.
        mirrored_files = self._ledger.mirrored.files()
        mirror_sizes = self._store.list()
        self._lease.check_listed(mirror_sizes)
        lost_names = [
            name for name, (nbytes, _) in mirrored_files.items() if mirror_sizes.get(name) != nbytes
        ]
        for name in lost_names:
            self._ledger.mirrored.forget(name)
            self._ledger.events.add(EventKind.MIRROR_LOST_FILE, mirror=self._store.url, name=name)
        return mirror_sizes, bool(lost_names)

    def upload(self, name: str) -> None:
        """Upload a shard, and record it in the ledger as mirrored.

        Raises:
            Resumable: the local shard is missing, or a file of the user has its name.
        """
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
        self._ledger.mirrored.record(name, nbytes, sha256)

    def delete_local(self) -> None:
        """Delete the local shards that the newest snapshot names."""
        for name in self.deletable():
            self._storage.remove(self._out / name)

    def finish(self, companions: Callable[[], Companions]) -> bool:
        """Write the files beside the shards, then the manifest.

        Args:
            companions: returns the files beside the shards.

        Returns:
            True if the model is complete; False if a shard has to be uploaded again first.
        """
        _, has_lost_files = self.list_and_forget_missing()
        if has_lost_files:
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

    def finish_if_manifest_exists(self) -> bool:
        """Return whether an earlier `finish` wrote the manifest although its response was lost.

        If so, remove the remaining metadata. This does not check the lease, because the lease may
        already be removed with the other metadata.
        """
        if not self._manifests:
            return False
        try:
            manifest = self._store.get(MANIFEST_FILE)
            if not any(is_same_model(manifest, sent_manifest) for sent_manifest in self._manifests):
                return False
        except FileNotFoundError:
            return False
        remove_metadata(self._store, self._lease.token)
        return True

    def _report_conflict(self, name: str, now: str) -> None:
        """Report a conflicting file to the user, and record it in the ledger."""
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
