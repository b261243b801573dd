"""``resumerge reproduce`` for a terminal: whether a model that was made again is the same."""

from __future__ import annotations

from itertools import islice

from rich.console import Group, RenderableType

from resumerge.engine.reproduction.comparison import Reproduction
from resumerge.printable import printable
from resumerge.sizes import counted, show_size
from resumerge.ui.terminal.prose import Prose

SHOWN = 10
"""The most tensors, or files, that are listed."""


def show_reproduction(found: Reproduction) -> RenderableType:
    """Return the verdict, a line for each differing tensor or file, and possible explanations."""
    compared = f"{counted(found.tensors, 'tensor')} ({show_size(found.nbytes)}) and "
    compared += f"{counted(found.files, 'file')} beside them"
    if found.identical:
        said, style = f"identical to {found.original}: {compared}", "green"
    else:
        said = f"not the same as {found.original}: of {compared}, {len(found.differing)} differ"
        style = "red"
    rows = [f"  {name}: {what}" for name, what in islice(found.differing.items(), SHOWN)]
    if (more := len(found.differing) - SHOWN) > 0:
        rows.append(f"  and {more} more")
    rows += [f"  {reason}" for reason in found.reasons]
    return Group(
        Prose(printable(f"{found.output}: {said}"), style=style),
        *(Prose(printable(row)) for row in rows),
    )
