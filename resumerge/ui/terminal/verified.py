"""What ``resumerge verify`` prints, and how what is damaged is mended."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from resumerge.engine.recovery.verify import Verification
from resumerge.printable import printable
from resumerge.report.resume_command import mirror_command, remake_command, resume_command
from resumerge.report.sizes import counted


def show_verification(
    found: Verification, damaged: Iterable[tuple[str, str]] | None = None
) -> RenderableType:
    """The verdict, and a line for everything that is damaged.

    Args:
        damaged: names and what was found, where not all of them are to be shown.
    """
    pending = f", {found.pending} not computed yet" if found.pending else ""
    verdict = ("intact", "green") if found.intact else ("damaged", "red")
    rest = f", {counted(found.units, 'tensor')} compared{pending}"
    rows = found.damaged.items() if damaged is None else damaged
    lines = (Text(printable("  " + ": ".join(filter(None, row)))) for row in rows)
    return Group(Text.assemble(f"{printable(found.where)}: ", verdict, rest), *lines)


def mending(found: Verification, state_dir: Path | None) -> tuple[list[str], str]:
    """What to say of something damaged, and the command that mends it.

    Returns:
        Lines for a person, and the last line, to be copied.
    """
    if found.mirror is not None and found.remake:
        text = (
            "It is mended by `resumerge resume` on the machine that made it. On any other, this"
            " computes everything again, with the recipe and a new output folder:"
        )
        return [text], remake_command(found.mirror)
    if found.mirror is not None and not found.marked:
        return ["What is damaged there is computed anew by:"], mirror_command(found.mirror)
    lines = ["Damaged tensors are computed anew by:"]
    if not found.marked:
        again = "another process works on the run, or its ledger is read-only: verify it again"
        lines.insert(0, f"Not noted in the ledger ({again})")
    return lines, resume_command(found.run, state_dir)
