"""``resumerge cache`` for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType

from resumerge.buckets.address import is_bucket
from resumerge.documents.cache_check import CachedFile, CacheReport
from resumerge.printable import printable
from resumerge.sizes import show_size
from resumerge.ui.terminal.prose import Prose

_COLOURS = {"intact": "green", "repaired": "yellow", "damaged": "red", "missing": "red"}


def show_cache(report: CacheReport) -> RenderableType:
    """Every file that was checked, and its state."""
    rows = [_row(file) for file in report.files]
    if not rows:
        rows = [Prose("Nothing to check: no model is from the Hub or from a bucket.")]
    return Group(*rows, *(Prose(note) for note in report.notes))


def _row(file: CachedFile) -> Prose:
    model = file.model if is_bucket(file.model) else f"{file.model}@{file.revision[:8]}"
    text = f"{model} {file.file}, {show_size(file.bytes)}"
    return Prose(printable(text), f"{file.state:<8}", _COLOURS[file.state])
