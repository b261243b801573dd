"""The watch over the source files of an attempt, which must not change during the merge."""

from __future__ import annotations

from collections.abc import Iterable

from resumerge.errors import Reason, Resumable
from resumerge.event_kinds import EventKind
from resumerge.ledger import Ledger
from resumerge.planning.plan import Plan, SourceFileKey, Unit
from resumerge.sizes import counted
from resumerge.sources.reader import SourceReader
from resumerge.sources.types import REMOTE


class SourceWatch:
    """A watch that checks whether source files changed since their headers were read.

    A block is committed only after all files that its unit reads were found to be unchanged. So the
    scans of the unit have read the same content as its blocks.
    """

    def __init__(self, plan: Plan, ledger: Ledger, reader: SourceReader) -> None:
        self._plan, self._ledger, self._reader = plan, ledger, reader

    def check(self, units: Iterable[Unit]) -> None:
        """Check the files that these units read.

        Raises:
            Resumable: a file was replaced, changed or deleted.
        """
        source_files: set[SourceFileKey] = set()
        for unit in units:
            source_files |= _files_of(self._plan, unit)
        if self._reader.changed(source_files):
            self.check_all()

    def check_all(self) -> None:
        """Check the files that all units read.

        Raises:
            Resumable: a file was replaced, changed or deleted.
        """
        files_by_unit = {unit.number: _files_of(self._plan, unit) for unit in self._plan.units}
        all_files = frozenset[SourceFileKey]().union(*files_by_unit.values())
        modified_files = {key for key in all_files if self._reader.changed([key])}
        if not modified_files:
            return
        affected_names = [
            unit.name
            for unit, unit_progress in zip(self._plan.units, self._ledger.units.progress())
            if unit_progress.committed_blocks and files_by_unit[unit.number] & modified_files
        ]
        sources = self._plan.sources
        model_texts = sorted({sources[n].part_of(name)[0].ref.text for n, name in modified_files})
        paths = sorted({str(sources[n].path(name)) for n, name in modified_files})
        self._ledger.events.add(
            EventKind.SOURCE_CHANGED,
            models=model_texts,
            files=paths[:5],
            units=len(affected_names),
            names=affected_names[:5],
        )
        raise Resumable(
            Reason.SOURCE_CHANGED,
            f"{' and '.join(paths[:3])}{' and more' * (len(paths) > 3)} changed or disappeared "
            f"during the merge. {counted(len(affected_names), 'tensor')} had been computed "
            f"from the old content{_examples(affected_names)}. To merge the new content, resume: "
            "what differs is computed again. To merge the old content, restore it, then resume",
        )


def _files_of(plan: Plan, unit: Unit) -> frozenset[SourceFileKey]:
    return plan.files_of(unit.expression, "local", *REMOTE)


def _examples(names: list[str]) -> str:
    return f" ({', '.join(names[:3])}{', …' * (len(names) > 3)})" if names else ""
