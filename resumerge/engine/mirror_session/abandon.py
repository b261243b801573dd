"""The removal of a run from its mirror (``--restart``). Only files that the run wrote are removed.

All files are found before the first one is removed, so a refusal leaves the mirror unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from resumerge.backup_names import backup_name, is_backup
from resumerge.engine.mirror_session.checks import SHOWN
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.resources.temporary import TemporaryFolder
from resumerge.errors import refuse
from resumerge.ledger import Ledger
from resumerge.mirror.manifest import read_manifest
from resumerge.mirror.names import (
    MANIFEST_FILE,
    fencing_tokens,
    lease_name,
    metadata_in,
    task_names,
)
from resumerge.mirror.retrying import retry_store
from resumerge.mirror.stores.base import METADATA, Store
from resumerge.mirror.stores.folder import PART
from resumerge.output_path import is_weights


@dataclass(frozen=True)
class WrittenFiles:
    """The files of a run in its mirror.

    Args:
        remove: the names of the files to remove, in the order of removal.
        backups: the backup names of files that the user edited, by their present names.
        uploads: the names of files whose upload may have been interrupted.
    """

    remove: list[str]
    backups: Mapping[str, str]
    uploads: frozenset[str] = frozenset()


def mirrored_files(ledger: Ledger) -> dict[str, tuple[int, str]]:
    """Return (size in bytes, SHA-256) of each file that a run may have in its mirror, by name.

    All shards are included, because a process may have died between the upload of a shard and its
    record in the ledger. The SHA-256 of such a shard is empty.
    """
    shard_files = {shard["name"]: (shard["nbytes"], "") for shard in ledger.shards.all()}
    return {**shard_files, **ledger.mirrored.files()}


def find_written(
    mirror: MirrorSession, run: str, files: Mapping[str, tuple[int, str]]
) -> WrittenFiles:
    """Find the files that a run wrote to its mirror. The mirror is not changed, except its lease.

    Args:
        mirror: the session with the run's mirror; it acquires the lease if it does not hold it.
        run: the id of the run whose files are found, which the lease names.
        files: (size in bytes, SHA-256) of each file, by name. A shard of this size counts as the
            run's file even if it is damaged. Any other file that differs counts as edited.

    Raises:
        InputError: the mirror contains files that the run did not write.
        Resumable: the mirror cannot be reached.
    """
    store = mirror.store
    lease = mirror.acquire_lease(run)
    listed_sizes = mirror.files()
    if (manifest := retry_store(store, lambda: read_manifest(store))) and manifest.run == run:
        files = {**files, **manifest.files}

    def is_unedited(name: str, nbytes: int, sha256: str) -> bool:
        return listed_sizes.get(name) == nbytes and (
            is_weights(name)
            or retry_store(store, lambda: store.sha256(name, mirror.moved)) == sha256
        )

    written_names = {name for name, file in files.items() if is_unedited(name, *file)}
    edited_names = sorted((files.keys() & listed_sizes.keys()) - written_names)
    written_names |= {name + PART for name in files} & listed_sizes.keys()
    lease_names = {lease_name(token) for token in fencing_tokens(listed_sizes)}
    metadata_names = {
        name for name in listed_sizes if name.startswith(f"{METADATA}/")
    } - lease_names
    expected_names = (
        written_names | metadata_names | lease_names | store.own_files | set(edited_names)
    )
    if foreign_names := sorted(
        n for n in listed_sizes if n not in expected_names and not is_backup(n)
    ):
        raise refuse(
            f"The {store.noun} holds files that the run did not write",
            where=mirror.url,
            expected="only files that the run wrote",
            found=", ".join(foreign_names[:SHOWN]),
            fix="move the files that you need to another place, and delete the rest",
        )
    # Remove config.json first: without it, no program loads the model. Keep the leases, because
    # this process holds one.
    config_names = [name for name in ("config.json",) if name in written_names]
    removed_last = sorted(
        metadata_in(metadata_names), key=lambda name: (name != MANIFEST_FILE, name)
    )
    lease.check()
    names_to_remove = [*config_names, *sorted(written_names - set(config_names)), *removed_last]
    return WrittenFiles(names_to_remove, backup_names(edited_names, listed_sizes), frozenset(files))


def abandon_mirror(mirror: MirrorSession, written: WrittenFiles) -> None:
    """Remove a run's files from its mirror. Files that the user edited get backup names.

    Raises:
        InputError: the mirror cannot be used.
        Resumable: the mirror cannot be reached.
    """
    back_up(mirror, written.backups)
    # Remove the files of a cluster's tasks first, because that ends the tasks.
    if tasks := [task.name for task in task_names(written.remove)]:
        retry_store(mirror.store, lambda: mirror.store.put({}, tasks))
    retry_store(mirror.store, lambda: mirror.store.abandon_uploads(written.uploads))
    if written.remove:
        retry_store(mirror.store, lambda: mirror.store.put({}, written.remove))


def back_up(mirror: MirrorSession, names: Mapping[str, str]) -> None:
    """Rename files of a mirror to backup names. A file has at least one of both names throughout.

    Args:
        mirror: the session with the mirror; the caller holds its lease.
        names: the backup names, by present name.

    Raises:
        InputError: the mirror cannot be used.
        Resumable: the mirror cannot be reached.
    """
    store = mirror.store
    for name, backup in names.items():
        if retry_store(store, lambda: _rename(store, name, backup)):  # noqa: B023
            continue
        with TemporaryFolder() as temporary_folder:
            local_copy = temporary_folder / "copy"
            retry_store(store, lambda: store.download(name, local_copy, mirror.moved))  # noqa: B023
            retry_store(store, lambda: store.upload(backup, local_copy, mirror.moved))  # noqa: B023
            retry_store(store, lambda: store.put({}, [name]))  # noqa: B023


def _rename(store: Store, name: str, backup: str) -> bool:
    """Rename a file, and return whether the store can. Accept a file that was renamed before."""
    try:
        return store.rename(name, backup)
    except FileNotFoundError:
        if backup not in store.list():
            raise
        return True


def backup_names(names: Iterable[str], listed: Mapping[str, int]) -> dict[str, str]:
    """Choose a free backup name for each file of a mirror that has to be renamed.

    Args:
        names: the present names of the files to rename.
        listed: the size in bytes of every file in the mirror, by name.

    Returns:
        the backup names, by present name.
    """
    return {name: backup_name(name, listed.__contains__) for name in names}
