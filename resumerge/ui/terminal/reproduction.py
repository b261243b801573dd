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
    scope_text = f"{counted(made.tensors, 'tensor')} ({show_size(made.nbytes)}) and "
    scope_text += f"{counted(made.files, 'file')} beside them"
    if made.identical:
        verdict_text, style = f"identical to {made.original}: {scope_text}", "green"
    else:
        verdict_text = (
            f"not the same as {made.original}: of {scope_text}, {len(made.differing)} differ"
        )
        style = "red"
    rows = [f"  {name}: {difference}" for name, difference in islice(made.differing.items(), SHOWN)]
    if (hidden_count := len(made.differing) - SHOWN) > 0:
        rows.append(f"  and {hidden_count} more")
    rows += [f"  {reason}" for reason in made.reasons]
    return Group(
        Prose(printable(f"{made.output}: {verdict_text}"), style=style),
        *(Prose(printable(row)) for row in rows),
    )
