"""``resumerge reproduce`` for a terminal: the comparison of a repeated merge with the original."""

from __future__ import annotations

from itertools import islice

from rich.console import Group, RenderableType

from resumerge.engine.reproduction.comparison import Reproduction
from resumerge.printable import printable
from resumerge.sizes import counted, show_size
from resumerge.ui.terminal.prose import Prose

SHOWN = 10
"""The most tensors or files that are listed."""


def show_reproduction(made: Reproduction) -> RenderableType:
    """Return the verdict, a line for each differing tensor or file, and possible explanations."""
    compared = f"{counted(made.tensors, 'tensor')} ({show_size(made.nbytes)}) and "
    compared += f"{counted(made.files, 'file')} beside them"
    if made.identical:
        verdict, style = f"identical to {made.original}: {compared}", "green"
    else:
        verdict = f"not the same as {made.original}: of {compared}, {len(made.differing)} differ"
        style = "red"
    rows = [f"  {name}: {what}" for name, what in islice(made.differing.items(), SHOWN)]
    if (more := len(made.differing) - SHOWN) > 0:
        rows.append(f"  and {more} more")
    rows += [f"  {reason}" for reason in made.reasons]
    return Group(
        Prose(printable(f"{made.output}: {verdict}"), style=style),
        *(Prose(printable(row)) for row in rows),
    )
