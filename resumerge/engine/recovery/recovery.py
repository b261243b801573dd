"""Recovery: bring ledger and shards into agreement (the table in docs/architecture/ledger.md)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence, Set
from pathlib import Path

from resumerge.engine.recovery.backup import rename_to_backup
from resumerge.engine.shards.checksums import first_mismatch
from resumerge.engine.shards.sealing import record_sealed, seal
from resumerge.engine.shards.shard_files import ShardFiles
from resumerge.errors import Reason, Resumable
from resumerge.event_kinds import EventKind
from resumerge.ledger import Ledger, Progress
from resumerge.planning.plan import Plan, Shard
from resumerge.storage import Storage

LAST_BATCHES = 2
"""The number of batches, at the end of the last attempt, whose units recovery compares."""


class Recovery:
    """A recovery, which makes ledger and shards agree before an attempt computes anything.

    Args:
        plan: the plan of the run; a complete shard stays open while ranks of its adapter are
            undecided.
        ledger: the ledger, in which units become pending and shards are sealed or reopened.
        files: the files of the plan's shards, which are created, renamed and deleted.
        storage: the operations on files.
        suspects: the numbers of units to compare with their checksums, in open or sealed shards.
            Units that the last batches wrote to open shards are always compared.
        report_read: called after each unit that was read, with the bytes read so far and the total
            to read.
        creates_later: whether the files of shards without committed units are created later, when
            the disk has space.
    """

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        files: ShardFiles,
        storage: Storage,
        suspects: Set[int],
        report_read: Callable[[int, int], None],
        creates_later: bool = False,
    ) -> None:
        self._plan, self._ledger, self._files, self._storage = plan, ledger, files, storage
        self._suspects, self._report_read = suspects, report_read
        self._creates_later = creates_later
        self._done, self._total = 0, sum(plan.units[number].nbytes for number in suspects)

    def run(self) -> list[Progress]:
        """Check every shard, and repair the ledger or the shard's file.

        After that, each shard is sealed, or it is open and has its partial file (with
        `creates_later`, only if it has committed units). A sealed shard is in the output's folder,
        or only in the mirror.

        Returns:
            the progress of every unit.
        """
        states = {row["number"]: row["state"] for row in self._ledger.shards.all()}
        self._progress = self._ledger.units.progress()
        self._recent = self._ledger.units.recent(LAST_BATCHES)
        self._mirrored = set(self._ledger.mirrored.checksums())
        for shard in self._plan.shards:
            if states[shard.number] == "sealed":
                self._check_sealed(shard)
            elif self._files.final(shard).exists() and not self._files.partial(shard).exists():
                self._check_renamed(shard)
            else:
                self._check_open(shard)
        return self._ledger.units.progress()

    def _check_sealed(self, shard: Shard) -> None:
        """Check the file of a sealed shard. A different size or header means that it is damaged."""
        final_path = self._files.final(shard)
        if shard.name in self._mirrored and not final_path.exists():
            return
        if not self._files.has_size_and_header(shard, final_path):
            self._restart_shard(shard, final_path)
        elif self._forget_mismatching(shard, final_path, self._suspects_in(shard)):
            self._files.unseal(shard)

    def _check_renamed(self, shard: Shard) -> None:
        """Check a file with the final name of a shard that is open in the ledger.

        If the file has the shard's size and header, checksums decide. If all units match, the shard
        is sealed. Otherwise the file is renamed to its partial name, and units that differ become
        pending.
        If the file has another size or header, the ledger decides. If units of the shard were
        committed, the file is a damaged file of the run, and is deleted. Otherwise it is the user's
        file, and is renamed to its backup name.
        """
        final_path = self._files.final(shard)
        unit_numbers = range(shard.first, shard.last)
        if not self._files.has_size_and_header(shard, final_path):
            if not any(self._progress[number].committed_blocks for number in unit_numbers):
                self._move_to_backup(final_path)
            self._restart_shard(shard, final_path)
            return
        is_complete = all(self._progress[number].checksum for number in unit_numbers)
        damaged_units = self._forget_mismatching(shard, final_path, unit_numbers)
        if is_complete and not damaged_units:
            self._storage.sync_file(final_path)
            self._storage.sync_folder(final_path.parent)
            self._ledger.events.add(EventKind.SHARD_FOUND_WHOLE, shard=shard.name)
            record_sealed(shard, self._ledger, self._storage)
        else:
            self._files.unseal(shard)

    def _check_open(self, shard: Shard) -> None:
        """Check the partial file of an open shard.

        If a file with the shard's final name exists too, it is the user's, and is renamed to its
        backup name.
        """
        partial_path = self._files.partial(shard)
        final_path = self._files.final(shard)
        # The run's own shard never has both names.
        if final_path.is_symlink() or final_path.exists():
            self._move_to_backup(final_path)
        unit_numbers = range(shard.first, shard.last)
        if self._creates_later and not any(
            self._progress[n].committed_blocks for n in unit_numbers
        ):
            self._storage.remove(partial_path)
            return
        if not self._files.has_size_and_header(shard, partial_path):
            self._restart_shard(shard, partial_path)
            return
        recent_units = [
            number for number in unit_numbers if number in self._recent - self._suspects
        ]
        damaged_units = self._forget_mismatching(
            shard, partial_path, [*recent_units, *self._suspects_in(shard)]
        )
        is_complete = not damaged_units and all(
            self._progress[number].checksum for number in unit_numbers
        )
        if is_complete and not self._plan.is_undecided:
            seal(shard, self._files, self._ledger, self._storage)

    def _move_to_backup(self, path: Path) -> None:
        """Rename a file that the run did not write to its backup name, and record an event."""
        backup = rename_to_backup(path, self._storage)
        self._ledger.events.add(EventKind.FILE_SET_ASIDE, name=path.name, now=backup.name)

    def _suspects_in(self, shard: Shard) -> list[int]:
        return [number for number in range(shard.first, shard.last) if number in self._suspects]

    def _restart_shard(self, shard: Shard, path: Path) -> None:
        """Delete a shard's file, make its committed units pending, and create a new file.

        The file is missing, truncated, or has another header. With `creates_later`, the new file is
        not created now.
        """
        found_state = "missing"
        if path.exists():
            found_state = f"{path.stat().st_size} bytes, or a different header"
            self._storage.remove(path)
        committed_units = [
            n for n in range(shard.first, shard.last) if self._progress[n].committed_blocks
        ]
        if committed_units:
            self._ledger.units.forget(
                committed_units, EventKind.SHARD_LOST, shard=shard.name, found=found_state
            )
        if not self._creates_later:
            self._files.create(shard)

    def _forget_mismatching(self, shard: Shard, path: Path, units: Sequence[int]) -> list[int]:
        """Make units pending whose bytes differ from their checksums, and return their numbers.

        Raises:
            Resumable: the damaged file is also a local model's file (``--link``).
        """
        if not units:
            return []
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            damaged_units = []
            for number in units:
                unit, hashes = self._plan.units[number], self._progress[number].hashes
                if first_mismatch(fd, unit, hashes) is not None:
                    damaged_units.append(number)
                self._done += unit.nbytes
                self._report_read(self._done, max(self._done, self._total))
        finally:
            os.close(fd)
        if damaged_units:
            self._refuse_damaged_source(shard, path)
            first_names = [self._plan.units[number].name for number in damaged_units[:5]]
            self._ledger.units.forget(
                damaged_units, EventKind.CHECKSUM_MISMATCH, shard=shard.name, names=first_names
            )
        return damaged_units

    def _refuse_damaged_source(self, shard: Shard, path: Path) -> None:
        """Raise if the damaged shard is a hard link to a local model's file.

        Computing the units again would read the damaged model, whose original content is unknown.

        Raises:
            Resumable: the damaged file is also a local model's file.
        """
        model_file = self._files.damaged_source(shard, path)
        if model_file is not None:
            raise Resumable(
                Reason.SOURCE_CHANGED,
                f"{model_file} does not have the bytes any more that were merged, and {path} is "
                "another name of the same file (--link). Restore the model's file, then resume. To "
                "merge it as it is now, start over with --restart",
            )
