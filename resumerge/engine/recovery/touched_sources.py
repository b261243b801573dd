"""Local models with new stamps, which the ledger stores after the check of their contents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from resumerge.engine.reporter import Reporter
from resumerge.event_kinds import EventKind
from resumerge.ledger import Ledger
from resumerge.sizes import counted
from resumerge.sources import Source

ReadBefore = Literal["all", "some", "none"]
"""How much of the files' tensors was read for committed blocks."""

_READ_BEFORE: Mapping[ReadBefore, str] = {
    "all": "the content is the same",
    "some": "what was read before is the same; the rest is taken as it is now",
    "none": "nothing was read before, so the content is taken as it is now",
}


@dataclass(frozen=True, kw_only=True)
class TouchedSources:
    """Local files with stamps that differ from the ledger's, and the units to compute again.

    Args:
        files: the paths of the files, sorted.
        units: the numbers of the units to compute again.
        is_changed: whether contents differ from the contents that units were computed from.
        is_trusted: whether the comparison of contents was skipped (`--trust-sources`).
        read: how much of these files was read before.
    """

    files: Sequence[str]
    units: Sequence[int]
    is_changed: bool
    is_trusted: bool
    read: ReadBefore

    @property
    def said(self) -> str:
        """The sentence on the contents in the user's note."""
        if self.is_changed:
            return (
                f"the content differs, so {counted(len(self.units), 'tensor')} will be computed "
                "again"
            )
        if self.is_trusted:
            return "the content was not compared (--trust-sources)"
        return _READ_BEFORE[self.read]


def record_touched(
    touched: TouchedSources | None, sources: Sequence[Source], ledger: Ledger, reporter: Reporter
) -> None:
    """Store the sources' present stamps in the ledger, and make units of changed files pending.

    Args:
        touched: the files with new stamps; if None, nothing is done.
        sources: the sources of the present plan, with the stamps that are stored.
        ledger: the ledger whose stamps are replaced, even if no unit becomes pending.
        reporter: receives a note about the files.
    """
    if touched is None:
        return
    first_files = touched.files[:5]
    if touched.units:
        ledger.units.forget(touched.units, EventKind.SOURCE_DIFFERS, files=first_files)
    kind = EventKind.SOURCES_TRUSTED if touched.is_trusted else EventKind.SOURCE_TOUCHED
    ledger.events.add(kind, files=first_files)
    source_parts = [part for source in sources for part in source.parts.values()]
    ledger.set_stamps({part.ref.text: stamps_of(part) for part in source_parts})
    reporter.note(
        f"{counted(len(touched.files), 'model file')}: the modification time changed; "
        f"{touched.said}"
    )


def stamps_of(source: Source) -> str:
    """Return the stamps of a source's local files, as JSON for the ledger."""
    stamps = {name: file.stamp for name, file in sorted(source.files.items())}
    return json.dumps({name: stamp.as_json() for name, stamp in stamps.items() if stamp})
