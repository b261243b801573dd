"""Damaged source files: the units that were computed from them become pending."""

from __future__ import annotations

from collections.abc import Callable

from resumerge.event_kinds import EventKind
from resumerge.ledger import Ledger
from resumerge.planning.plan import Plan
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.metadata_cache import Damage, MetadataCache
from resumerge.sources.remote.files import check_cached, remote_file


def find_damage(
    plan: Plan, ledger: Ledger, metadata: MetadataCache
) -> dict[tuple[int, str], Damage]:
    """Return the damage that was found in source files since the run began and is not yet handled.

    Returns:
        the latest damage of each file, by (number of the source, name of the file).
    """
    run_created = ledger.run()["created"]
    handled_ids = {
        event["data"].get("damage") for event in ledger.events.all(EventKind.SOURCE_DAMAGED)
    }
    unhandled_damage = {}
    for files in {plan.remote_files_of(unit) for unit in plan.units}:
        for source_number, file_name in files:
            file = remote_file(plan.sources[source_number], file_name)
            for path in {file.pointer, file.blob}:
                for damage in metadata.damages(path, since=run_created):
                    if damage.id not in handled_ids:
                        unhandled_damage[source_number, file_name] = damage
    return unhandled_damage


def forget_damaged(
    plan: Plan, ledger: Ledger, metadata: MetadataCache, check: Callable[[], None]
) -> None:
    """Make all units pending that were computed from damaged files.

    Units that were computed before the damage are included, because its time is unknown. Files that
    committed units have read and pending units need are checked first: if they have changed, they
    are compared with their hashes.

    Args:
        plan: the plan of the run; its units say which remote files were read, and which are needed.
        ledger: the ledger in which units become pending, with an event for each damaged file.
        metadata: the metadata cache, which records damage.
        check: called between pieces of a file. If it raises, the reading ends with that error.
    """
    while True:
        progress = ledger.units.progress()
        read_files: set[tuple[int, str]] = set()
        needed_files: set[tuple[int, str]] = set()
        for unit, unit_progress in zip(plan.units, progress):
            read_files |= plan.remote_files_of(unit) if unit_progress.committed_blocks else set()
            needed_files |= plan.remote_files_of(unit) if not unit_progress.is_complete else set()
        # Damage is recorded in the metadata cache.
        for source_number, file_name in read_files & needed_files:
            check_cached(
                remote_file(plan.sources[source_number], file_name),
                metadata,
                DownloadCallbacks(check=check),
            )
        damages = find_damage(plan, ledger, metadata)
        if not damages:
            return
        for file_key, damage in damages.items():
            unit_numbers = [
                unit.number
                for unit, unit_progress in zip(plan.units, progress)
                if unit_progress.committed_blocks and file_key in plan.remote_files_of(unit)
            ]
            model = plan.sources[file_key[0]].ref.text
            ledger.units.forget(
                unit_numbers,
                EventKind.SOURCE_DAMAGED,
                model=model,
                file=file_key[1],
                damage=damage.id,
            )
