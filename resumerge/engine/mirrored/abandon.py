"""Giving up what a run wrote to its mirror, and nothing else.

What is to be removed is found first, so that everything that can be refused is refused while all is
still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from resumerge.engine.mirrored.mirror_session import SHOWN, MirrorSession
from resumerge.errors import refuse
from resumerge.ledger import Ledger
from resumerge.mirror.backup_names import backup_name, is_backup
from resumerge.mirror.conflicts import metadata_in
from resumerge.mirror.lease import retry
from resumerge.mirror.lease_record import epochs, lease_name
from resumerge.mirror.manifest import MANIFEST_FILE, SHARD, read_manifest
from resumerge.mirror.stores.base import METADATA, Store
from resumerge.mirror.stores.folder import PART


@dataclass(frozen=True)
class WrittenFiles:
    """What is in a mirror that is to be given up.

    Args:
        remove: names, in the order that they go.
        aside: names of files that somebody edited, by the ones that they get.
    """

    remove: list[str]
    aside: Mapping[str, str]


def mirrored_files(ledger: Ledger) -> dict[str, tuple[int, str]]:
    """Bytes and SHA-256 of what a ledger says is in the mirror, by name."""
    return {**{shard["name"]: (-1, "") for shard in ledger.shards()}, **ledger.mirrored_files()}


def find_written(
    far: MirrorSession, run: str, files: Mapping[str, tuple[int, str]]
) -> WrittenFiles:
    """What a run wrote to its mirror; nothing is changed yet, but the mirror is held.

    Args:
        files: bytes and SHA-256 of each, by name. A shard of that size that differs is damaged;
            what else differs was edited.

    Raises:
        InputError: there is something else; nothing was removed.
        Resumable: the mirror cannot be reached.
    """
    lease = far.hold(run)
    there = far.files()
    if (done := retry(far.store, lambda: read_manifest(far.store))) and done.run == run:
        files = {**files, **done.files}
    ours = {
        name
        for name, (nbytes, sha256) in files.items()
        if there.get(name) == nbytes
        and (
            name.endswith(SHARD)
            or retry(far.store, lambda: far.store.sha256(name, far.moved)) == sha256  # noqa: B023
        )
    }
    edited = sorted((files.keys() & there.keys()) - ours)
    ours |= {name + PART for name in files} & there.keys()
    leases = {lease_name(n) for n in epochs(there)}
    books = {name for name in there if name.startswith(f"{METADATA}/")} - leases
    known = ours | books | leases | far.store.own_files | set(edited)
    if others := sorted(n for n in there if n not in known and not is_backup(n)):
        raise refuse(
            "The mirror holds files that the run did not write",
            where=far.url,
            expected="nothing but what the run wrote there",
            found=", ".join(others[:SHOWN]),
            fix="move away what is to be kept, and delete the rest",
        )
    first = [name for name in ("config.json",) if name in ours]
    rest = sorted(ours - set(first))
    last = sorted(metadata_in(books), key=lambda name: (name != MANIFEST_FILE, name))
    lease.check()
    return WrittenFiles([*first, *rest, *last], backup_names(edited, there))


def abandon_mirror(far: MirrorSession, theirs: WrittenFiles) -> None:
    """Remove what a run wrote to its mirror; what was edited since gets another name.

    Raises:
        InputError, Resumable: the mirror cannot be used.
    """
    back_up(far, theirs.aside)
    if theirs.remove:
        retry(far.store, lambda: far.store.put({}, theirs.remove))


def back_up(far: MirrorSession, names: Mapping[str, str]) -> None:
    """Give files of a mirror other names; they are there under one of both at every instant.

    Raises:
        InputError, Resumable: the mirror cannot be used.
    """
    store = far.store
    for name, aside in names.items():
        if retry(store, lambda: _rename(store, name, aside)):  # noqa: B023
            continue
        with TemporaryDirectory(prefix="resumerge-") as folder:
            copy = Path(folder) / "copy"
            retry(store, lambda: store.download(name, copy, far.moved))  # noqa: B023
            retry(store, lambda: store.upload(aside, copy, far.moved))  # noqa: B023
            retry(store, lambda: store.put({}, [name]))  # noqa: B023


def _rename(store: Store, name: str, aside: str) -> bool:
    """Rename a file where the place can do that; one that an earlier try renamed stays so."""
    try:
        return store.rename(name, aside)
    except FileNotFoundError:
        if aside not in store.list():
            raise
        return True


def backup_names(names: Iterable[str], there: Mapping[str, int]) -> dict[str, str]:
    """The names that files get which are set aside: none that is there."""
    return {name: backup_name(name, there.__contains__) for name in names}
