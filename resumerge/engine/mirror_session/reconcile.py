"""Bring the ledger, the output folder and the mirror of a run into agreement before an attempt."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from resumerge.digests import sha256_of
from resumerge.engine.mirror_session.abandon import back_up, backup_names
from resumerge.engine.mirror_session.checks import refuse_mirror
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.resources.resource_errors import as_resumable, is_full
from resumerge.engine.resources.temporary import TemporaryFolder
from resumerge.engine.shards.shard_files import PARTIAL
from resumerge.errors import Reason, Resumable, refuse
from resumerge.event_kinds import EventKind
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.mirror.manifest import Manifest, missing_files
from resumerge.mirror.names import MANIFEST_FILE, snapshot_names
from resumerge.mirror.retrying import retry_store
from resumerge.mirror.snapshots import write_snapshot
from resumerge.mirror.state import DAMAGED, FINISHED, FOREIGN, NOTHING, UNFINISHED, MirrorState
from resumerge.mirror.stores.folder import PART
from resumerge.output_path import CARD, is_weights
from resumerge.sizes import counted
from resumerge.storage import Storage


class Reconciler:
    """A reconciler of a run with its mirror.

    Call `reconcile`, then `compare`, and with ``--bring-back`` also `bring_back`.
    """

    def __init__(self, ledger: Ledger, out: Path, mirror: MirrorSession, storage: Storage) -> None:
        self._ledger, self._out, self._mirror, self._storage = ledger, out, mirror, storage
        self._run: dict[str, Any] = ledger.run()
        self._mirrored = set(ledger.mirrored.checksums())
        """The names of the files that the mirror should contain."""

    # 1. The lease, and the run's progress in the mirror

    def reconcile(self, *, may_be_empty: bool) -> Manifest | None:
        """Acquire the lease, and adopt shards that other machines have sealed and mirrored.

        Args:
            may_be_empty: whether to accept a mirror without files of the run, because the command
                names the mirror.

        Returns:
            the manifest if another machine has finished the run, otherwise None. In the first case,
            this process does not hold the lease.

        Raises:
            InputError: the mirror contains another run or other files, or another machine is
                working on it.
            Resumable: all files of the run are missing in the mirror, or the mirror cannot be
                reached.
        """
        if self._run["mirror"] == self._mirror.url:
            self._mirror.check_mounted()
        with TemporaryFolder() as temporary_folder:
            # A finished mirror is reported without the lease: this machine writes nothing there.
            state = self._mirror.read_state(temporary_folder / "before-the-lease.db")
            self._check_not_emptied(state, may_be_empty=may_be_empty)
            incomplete_manifest = None
            if state.kind == FINISHED:
                manifest = self._manifest(state)
                open_shards = self._ledger.shards.open()
                if not self._is_complete(manifest, state.files, open_shards):
                    incomplete_manifest = manifest
                elif open_shards:
                    return manifest
            lease = self._mirror.acquire_lease(self._run["id"])
            if incomplete_manifest is not None:
                lease.check()
                if self._is_new_mirror:
                    self._change_mirror(state)
                self._reopen(incomplete_manifest, state.files, lease.token)
                may_be_empty = True  # the manifest is removed, and shards may be missing
            # Before it gave up the lease, another machine may have written since the first reading.
            state = self._mirror.read_state(temporary_folder / LEDGER_FILE)
            self._adopt(state, temporary_folder / LEDGER_FILE, may_be_empty=may_be_empty)
        if self._is_new_mirror:
            self._change_mirror(state)
        return None

    @property
    def _is_new_mirror(self) -> bool:
        """Whether the ledger has another mirror for the run, or no mirror."""
        return bool(self._ledger.run()["mirror"] != self._mirror.url)

    def _check_not_emptied(self, state: MirrorState, *, may_be_empty: bool) -> None:
        """Refuse a mirror whose files are missing: probably, a drive is not mounted."""
        if state.kind == NOTHING and self._mirrored and not may_be_empty:
            store = self._mirror.store
            is_folder = store.local_folder is not None
            drive_hint = "If it is a drive, mount it, then resume. " if is_folder else ""
            raise Resumable(
                Reason.MIRROR,
                f"The {store.place} no longer has any file of this run. {drive_hint}To start with "
                f"an empty {store.noun}, name it again: --mirror {store.url}",
            )

    def _manifest(self, state: MirrorState) -> Manifest:
        """Return the manifest of a finished mirror. Refuse the mirror of another run."""
        if state.manifest is None or state.manifest.run != self._run["id"]:
            raise refuse_mirror(self._mirror, state)
        return state.manifest

    def _is_complete(
        self, manifest: Manifest, files: Mapping[str, int], open_shards: list[str]
    ) -> bool:
        """Return whether a finished model is still complete in the mirror.

        The sizes of all files are compared. Contents are compared for shards that are open on this
        machine, and for shards without a row in ``mirrored``, which `verify` found damaged or
        another machine mirrored.
        """
        if missing_files(manifest, files):
            return False
        shard_names = {name for name in manifest.files if is_weights(name)}
        return all(
            name in manifest.files and self._sha256(name) == manifest.files[name][1]
            for name in sorted((shard_names - self._mirrored) | set(open_shards))
        )

    def _reopen(self, manifest: Manifest, files: Mapping[str, int], token: int) -> None:
        """Turn a finished mirror with missing files into the mirror of an unfinished run.

        This attempt finishes the mirror again. A snapshot is written before the manifest is
        removed, so that other processes find the run at every moment. The companions are written
        again, and files that the user edited get backup names.

        Args:
            manifest: the manifest that is removed; its files are those that the mirror should
                contain.
            files: the size in bytes of every file in the mirror, by name.
            token: the fencing token of the lease.
        """
        store = self._mirror.store
        edited_names = [
            name
            for name, (_, sha256) in manifest.files.items()
            if name in files and not is_weights(name) and self._sha256(name) != sha256
        ]
        for name, (nbytes, _) in self._ledger.mirrored.files().items():
            if files.get(name) != nbytes:
                self._ledger.mirrored.forget(name)
                self._ledger.events.add(
                    EventKind.MIRROR_LOST_FILE, mirror=self._mirror.url, name=name
                )
        self._ledger.set_state("interrupted")
        older_snapshots = snapshot_names(files)
        retry_store(store, lambda: write_snapshot(store, self._ledger, token, older_snapshots))
        retry_store(store, lambda: store.put({}, [MANIFEST_FILE]))
        new_names = backup_names(edited_names, files)
        back_up(self._mirror, new_names)
        for name, new_name in new_names.items():
            self._ledger.events.add(
                EventKind.FILE_SET_ASIDE, name=name, now=new_name, mirror=self._mirror.url
            )
        self._mirrored |= set(manifest.files)

    def _adopt(self, state: MirrorState, path: Path, *, may_be_empty: bool) -> None:
        """Adopt the progress in the mirror's snapshot, or refuse the mirror.

        Args:
            state: the state of the mirror, read under the lease.
            path: the path of the ledger that was read from the snapshot.
            may_be_empty: whether to accept a mirror without files of the run.
        """
        if state.kind == UNFINISHED:
            with closing(Ledger(path)) as snapshot:
                record = snapshot.run()
                if any(record[key] != self._run[key] for key in ("id", "fingerprint")):
                    raise refuse_mirror(self._mirror, state)
                self._adopt_shards(snapshot)
        elif state.kind in (FOREIGN, DAMAGED):
            if not self._wrote_all_of(state):
                raise refuse_mirror(self._mirror, state)
        else:
            self._check_not_emptied(state, may_be_empty=may_be_empty)

    def _adopt_shards(self, snapshot: Ledger) -> None:
        """Adopt shards that another machine has sealed and mirrored.

        A shard that this machine found damaged is not adopted, because the snapshot in the mirror
        is older. A shard with another header is not adopted but computed again: it is an adapter
        whose ranks the other machine has already chosen, and this machine has not.
        """
        forgotten_names = self._ledger.shards.reset_shards()
        intact_files = {
            n: f for n, f in snapshot.mirrored.files().items() if n not in forgotten_names
        }
        header_checksums = {
            shard["name"]: shard["header_checksum"] for shard in snapshot.shards.all()
        }
        same_shards = {
            shard["name"]: shard
            for shard in self._ledger.shards.all()
            if header_checksums.get(shard["name"]) == shard["header_checksum"]
        }
        adopted_rows = {}
        for name in snapshot.shards.sealed():
            if (
                name in intact_files
                and name in same_shards
                and same_shards[name]["state"] != "sealed"
            ):
                number = same_shards[name]["number"]
                adopted_rows[number] = snapshot.units.all(number)
                self._storage.remove(self._out / (name + PARTIAL))
        self._ledger.shards.adopt_mirrored(
            adopted_rows, {n: f for n, f in intact_files.items() if n in same_shards}
        )

    def _wrote_all_of(self, state: MirrorState) -> bool:
        """Return whether this run wrote all files of a mirror without a usable snapshot."""
        own_names = self._mirrored | set(self._ledger.written_names())
        possible_names = own_names | {name + PART for name in own_names} | {CARD}
        return bool(self._mirrored) and set(state.others) <= possible_names

    def _change_mirror(self, state: MirrorState) -> None:
        """Record the session's mirror as the mirror of the run.

        Raises:
            InputError: shards are only in the run's previous mirror.
        """
        missing_names = [
            name for name in self._ledger.mirrored.checksums() if not (self._out / name).is_file()
        ]
        if self._run["mirror"] and missing_names and state.kind != UNFINISHED:
            raise refuse(
                "Some shards are only in the current mirror of the run",
                where=self._run["mirror"],
                found=f"{counted(len(missing_names), 'shard')}, for example {missing_names[0]}",
                fix=f"copy them here first: `resumerge resume {self._run['id']} --bring-back`",
            )
        # A mirror with a snapshot of this run is the previous mirror under another address.
        files_in_mirror = self._ledger.mirrored.files() if state.kind == UNFINISHED else {}
        self._ledger.set_mirror(self._mirror.url)
        for name, (nbytes, sha256) in files_in_mirror.items():
            if state.files.get(name) == nbytes:
                self._ledger.mirrored.record(name, nbytes, sha256)

    # 2. The shards that are only in the mirror

    def compare(self) -> list[str]:
        """Verify the shards that are only in the mirror, and forget damaged and missing ones.

        Returns:
            the names of the intact shards that are only in the mirror.

        Raises:
            InputError: the mirror cannot be used.
            Resumable: the mirror cannot be read now.
        """
        intact_names = []
        for name, sha256 in self._ledger.mirrored.checksums().items():
            if (self._out / name).is_file():
                continue
            present_sha256 = self._sha256(name)
            if present_sha256 == sha256:
                intact_names.append(name)
            else:
                damage = "missing" if present_sha256 is None else "different content"
                url = self._mirror.url
                self._ledger.events.add(
                    EventKind.MIRROR_DAMAGED, name=name, found=damage, mirror=url
                )
                self._ledger.mirrored.forget(name)
        return intact_names

    def bring_back(self, names: list[str]) -> None:
        """Copy shards that are only in the mirror to this machine.

        Raises:
            InputError: the mirror cannot be used.
            Resumable: the shards cannot be read now.
        """
        sha256_by_name = self._ledger.mirrored.checksums()
        for name in names:
            fetch_from_mirror(self._mirror, name, sha256_by_name[name], self._out, self._storage)
            self._ledger.events.add(EventKind.BROUGHT_BACK, name=name, mirror=self._mirror.url)

    def _sha256(self, name: str) -> str | None:
        store = self._mirror.store
        return retry_store(store, lambda: store.sha256(name, self._mirror.moved))


def fetch_from_mirror(
    mirror: MirrorSession, name: str, sha256: str | None, out: Path, storage: Storage
) -> None:
    """Copy a file of the model to this machine, and verify the copy.

    Args:
        mirror: the session with the mirror to copy from; its lease is not needed.
        name: the file's name in the mirror, and below `out`.
        sha256: the SHA-256 in hex digits; None to accept any content.
        out: the folder to write to, which is created if necessary.
        storage: the operations on files.

    Raises:
        Resumable: the file is missing or damaged in the mirror, or this machine's disk is full.
    """
    final_path = out / name
    incoming_path = final_path.with_name(final_path.name + PARTIAL)
    storage.make_folder(final_path.parent)
    storage.remove(incoming_path)

    def download() -> None:
        try:
            mirror.store.download(name, incoming_path, mirror.moved)
        except OSError as error:
            if not is_full(error) and error.filename not in (
                str(incoming_path),
                str(incoming_path) + PART,
            ):
                raise
            for suffix in ("", PART):  # makes space on the disk
                storage.remove(incoming_path.with_name(incoming_path.name + suffix))
            raise as_resumable(error) from error

    try:
        retry_store(mirror.store, download)
    except FileNotFoundError:
        received_sha256 = None
    else:
        received_sha256 = sha256_of(incoming_path, lambda: mirror.moved(0))
    if received_sha256 is None or (sha256 is not None and received_sha256 != sha256):
        storage.remove(incoming_path)
        fault = "missing" if received_sha256 is None else "damaged"
        raise Resumable(
            Reason.MIRROR,
            f"{name} is {fault} in the {mirror.store.place}. To compute and upload it again, "
            "resume without --bring-back",
        )
    storage.sync_file(incoming_path)
    storage.rename(incoming_path, final_path)
