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
    began = ledger.run()["created"]
    handled = {event["data"].get("damage") for event in ledger.events.all(EventKind.SOURCE_DAMAGED)}
    unhandled = {}
    for files in {plan.remote_files_of(unit) for unit in plan.units}:
        for number, name in files:
            file = remote_file(plan.sources[number], name)
            for path in {file.pointer, file.blob}:
                for damage in metadata.damages(path, since=began):
                    if damage.id not in handled:
                        unhandled[number, name] = damage
    return unhandled


def forget_damaged(
    plan: Plan, ledger: Ledger, metadata: MetadataCache, check: Callable[[], None]
) -> None:
    """Make all units pending that were computed from damaged files.

    Units that were computed before the damage are included, because its time is unknown. Files that
    committed units have read and pending units need are checked first: if they have changed, they
    are compared with their hashes.

    Args:
        plan: the plan.
        ledger: the run's ledger.
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
        for number, name in read_files & needed_files:  # records damage in the metadata cache
            check_cached(
                remote_file(plan.sources[number], name), metadata, DownloadCallbacks(check=check)
            )
        damages = find_damage(plan, ledger, metadata)
        if not damages:
            return
        for key, damage in damages.items():
            units = [
                unit.number
                for unit, unit_progress in zip(plan.units, progress)
                if unit_progress.committed_blocks and key in plan.remote_files_of(unit)
            ]
            model = plan.sources[key[0]].ref.text
            ledger.units.forget(
                units, EventKind.SOURCE_DAMAGED, model=model, file=key[1], damage=damage.id
            )
