"""Verification: reads an output or a mirror, and compares it with the ledger's checksums."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from resumerge.engine.mirror_session.checks import refuse_mirror
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.recovery.checked_shard import CheckedShard, check_shard
from resumerge.engine.recovery.open_ledger import open_ledger, read_ledger
from resumerge.engine.recovery.ownership import has_checksum
from resumerge.engine.recovery.verification import Verification
from resumerge.engine.reporter import Reporter
from resumerge.engine.resources.lock import LOCK_FILE, lock_holder, run_lock
from resumerge.engine.resources.resource_errors import resumable_disk_errors
from resumerge.engine.resources.signals import StopRequest
from resumerge.engine.resources.temporary import TemporaryFolder
from resumerge.event_kinds import EventKind
from resumerge.ledger import LEDGER_FILE, Ledger
from resumerge.ledger.run_store import RunStore, named_output
from resumerge.mirror.damaged_files import find_damaged
from resumerge.mirror.retrying import retry_store
from resumerge.mirror.stores.registry import open_store
from resumerge.options import Options
from resumerge.output_path import CARD, OutputPath
from resumerge.sources import MetadataCache
from resumerge.storage import Storage


def verify_run(folder: Path, storage: Storage) -> Verification:
    """Read every committed block of a run's output, and compare it with its checksum.

    Damaged units become pending in the ledger, so that ``resume`` computes them again. If another
    process works on the run, or the ledger is not writable, the ledger stays unchanged.

    Raises:
        InputError: neither the ledger nor its snapshot can be used.
        Resumable: the output cannot be read now.
    """
    with resumable_disk_errors():
        if lock_holder(folder) is not None or not _is_writable(folder):
            return _verify(folder, read_ledger(folder), mark=False)
        with run_lock(folder, folder.name):
            return _verify(folder, open_ledger(folder, storage)[0], mark=True)


def verify_mirror(url: str, home: RunStore, storage: Storage) -> Verification:
    """Compare the files of a mirror with the checksums of its snapshot or manifest.

    Nothing is written to the mirror. If this machine has the run, the damaged files are removed
    from the run's table ``mirrored``, so that ``resume`` uploads them again.

    Raises:
        InputError: the mirror contains no run.
        Resumable: the mirror cannot be read now.
    """
    mirror = MirrorSession(url, Options(), Reporter(), StopRequest())
    with TemporaryFolder() as folder, resumable_disk_errors():
        snapshot_path = folder / LEDGER_FILE
        state = mirror.read_state(snapshot_path)
        if state.manifest is not None:
            run_id, files_in_mirror = state.manifest.run, dict(state.manifest.files)
            compared_units, pending_units = state.manifest.units, 0
        elif state.snapshot:
            with closing(Ledger(snapshot_path, read_only=True)) as ledger:
                run_id = ledger.run()["id"]
                files_in_mirror = ledger.mirrored.files()
                mirrored_by_shard = [
                    shard["name"] in files_in_mirror for shard in ledger.shards.all()
                ]
                mirrored_by_unit = [mirrored_by_shard[unit["shard"]] for unit in ledger.units.all()]
                compared_units = mirrored_by_unit.count(True)
                pending_units = mirrored_by_unit.count(False)
        else:
            raise refuse_mirror(mirror, state)
        if state.manifest is not None and CARD in state.files:
            files_in_mirror.pop(CARD, None)
        damaged_files = retry_store(
            mirror.store, lambda: find_damaged(mirror.store, files_in_mirror, mirror.moved)
        )
        local_run = next((folder for folder in home.runs() if folder.name == run_id), None)
        is_marked = (
            bool(damaged_files)
            and local_run is not None
            and _note_damage(local_run, mirror, damaged_files, storage)
        )
        needs_new_run = state.manifest is not None and local_run is None
        nbytes = sum(
            size for name, (size, _) in files_in_mirror.items() if name not in damaged_files
        )
        return Verification(
            run=run_id,
            output=mirror.store.local_folder or mirror.url,
            units=compared_units,
            nbytes=nbytes,
            pending=pending_units,
            damaged=damaged_files,
            marked=is_marked,
            mirror=mirror.url,
            files=len(files_in_mirror),
            remake=needs_new_run,
        )


def _note_damage(
    folder: Path, mirror: MirrorSession, damaged: Iterable[str], storage: Storage
) -> bool:
    """Record damaged files of a mirror in the run's ledger, and return whether that was possible.

    The ledger is not changed if another process works on the run, if the ledger is read-only, or if
    the run has another mirror.
    """
    if lock_holder(folder) is not None or not _is_writable(folder):
        return False
    with run_lock(folder, folder.name):
        ledger, _ = open_ledger(folder, storage)
        try:
            if ledger.run()["mirror"] != mirror.url:
                return False
            for name in damaged:
                ledger.events.add(
                    EventKind.MIRROR_DAMAGED, name=name, found="verify", mirror=mirror.url
                )
                ledger.mirrored.forget(name)
            ledger.set_state("interrupted")
            return True
        finally:
            ledger.close()


def _is_writable(folder: Path) -> bool:
    files = [folder, *(folder / name for name in (LEDGER_FILE, LOCK_FILE))]
    return all(os.access(path, os.W_OK) for path in files if path.exists())


def _verify(folder: Path, ledger: Ledger, *, mark: bool) -> Verification:
    try:
        output = OutputPath(Path(ledger.run()["output"]))
        only_in_mirror = _damage_in_mirror(ledger, output.folder)
        checked_shards: list[CheckedShard] = []
        for shard_row in ledger.shards.all():
            shard = check_shard(ledger, output.folder, shard_row, only_in_mirror)
            checked_shards.append(shard)
            if shard.download is not None:
                MetadataCache(folder.parent).forget_verdict(shard.download)
        companion_damage = _damaged_companions(ledger, output.folder)
        damage_by_name = {
            name: text for shard in checked_shards for name, text in shard.damaged.items()
        }
        damage_by_name.update(companion_damage)
        lost_units = [number for shard in checked_shards for number in shard.lost]
        if mark and lost_units:
            ledger.units.forget(
                lost_units, EventKind.VERIFY_FOUND_DAMAGE, names=list(damage_by_name)[:5]
            )
        if mark and (companion_damage or any(shard.is_repairable for shard in checked_shards)):
            ledger.set_state("interrupted")
        mirror_url = ledger.run()["mirror"]
        return Verification(
            run=folder.name,
            output=named_output(output.path, mirror_url),
            units=sum(shard.compared for shard in checked_shards),
            nbytes=sum(shard.nbytes for shard in checked_shards),
            pending=sum(shard.pending for shard in checked_shards),
            damaged=damage_by_name,
            marked=mark,
            linked=tuple(str(shard.linked) for shard in checked_shards if shard.linked is not None),
        )
    finally:
        ledger.close()


def _damaged_companions(ledger: Ledger, out: Path) -> dict[str, str]:
    """Return a text on each damaged companion except the model card, by the file's name."""
    return {
        name: "the file differs or is missing"
        for name, checksum in ledger.companions.checksums().items()
        if name != CARD and not has_checksum(out / name, checksum)
    }


def _damage_in_mirror(ledger: Ledger, out: Path) -> dict[str, str]:
    """Return a text on the damage of each file that exists only in the mirror, by name.

    The text is empty for an intact file.
    """
    run = ledger.run()
    checksums = {n: s for n, s in ledger.mirrored.checksums().items() if not (out / n).exists()}
    if not checksums:
        return {}
    store = open_store(run["mirror"])
    damage_by_name = {}
    for name, sha256 in checksums.items():
        present_sha256 = retry_store(store, lambda: store.sha256(name, lambda nbytes: None))  # noqa: B023
        damage_by_name[name] = (
            "" if present_sha256 == sha256 else f"{name} in {store.url} {_differs(present_sha256)}"
        )
    return damage_by_name


def _differs(sha256: str | None) -> str:
    return "is missing" if sha256 is None else "differs"
