"""Damaged source files: units that were computed from them are computed again."""

from __future__ import annotations

from collections.abc import Callable

from resumerge.engine.evaluation.source_watch import remote_files_of
from resumerge.event_kinds import EventKind
from resumerge.ledger import Ledger
from resumerge.planning.plan import Plan
from resumerge.remote.callbacks import DownloadCallbacks
from resumerge.remote.metadata_cache import Damage, MetadataCache
from resumerge.sources.remote.files import check_cached, remote_file


def find_damage(
    plan: Plan, ledger: Ledger, metadata: MetadataCache
) -> dict[tuple[int, str], Damage]:
    """Return the source files that were found damaged since the run began, and are not handled yet.

    Returns:
        the latest damage of each file, by number of the source and name.
    """
    began = ledger.run()["created"]
    handled = {event["data"].get("damage") for event in ledger.events.all(EventKind.SOURCE_DAMAGED)}
    unhandled = {}
    for files in {remote_files_of(plan, unit) for unit in plan.units}:
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
    """Make the units pending that were computed from damaged files.

    Nobody knows which of these units were computed before the damage. First, files that committed
    units have read and pending units need are compared with their hashes, if they changed.

    Args:
        plan: the plan.
        ledger: the run's ledger.
        metadata: the metadata cache, which records damage.
        check: called between pieces; an exception that it raises ends the reading.
    """
    while True:
        progress = ledger.units.progress()
        computed: set[tuple[int, str]] = set()
        needed: set[tuple[int, str]] = set()
        for unit, done in zip(plan.units, progress):
            computed |= remote_files_of(plan, unit) if done.committed_blocks else set()
            needed |= remote_files_of(plan, unit) if not done.is_complete else set()
        for number, name in computed & needed:  # damage is recorded in the metadata cache
            check_cached(
                remote_file(plan.sources[number], name), metadata, DownloadCallbacks(check=check)
            )
        damages = find_damage(plan, ledger, metadata)
        if not damages:
            return
        for key, damage in damages.items():
            units = [
                unit.number
                for unit, done in zip(plan.units, progress)
                if done.committed_blocks and key in remote_files_of(plan, unit)
            ]
            model = plan.sources[key[0]].ref.text
            ledger.units.forget(
                units, EventKind.SOURCE_DAMAGED, model=model, file=key[1], damage=damage.id
            )
