"""``resumerge verify`` for a terminal, and the command that repairs damage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from rich.console import Group, RenderableType

from resumerge.engine.recovery.verification import Recomputation, Verification
from resumerge.printable import printable
from resumerge.sizes import counted
from resumerge.ui.terminal.prose import Prose
from resumerge.ui.text.commands import (
    mirror_command,
    remake_command,
    resume_command,
    verify_command,
)

SHOWN = 10
"""The most tensors or files that are listed."""


def show_verification(
    verification: Verification, damaged: Iterable[tuple[str, str]] | None = None
) -> RenderableType:
    """Return the verdict, and a line for each damaged tensor or file.

    Args:
        verification: the result of comparing an output or a mirror with its checksums.
        damaged: (name, damage) of the tensors and files to list; None for all damaged ones.
    """
    if verification.is_deleted:
        tensors = counted(verification.units, "tensor")
        heading = f"{printable(verification.where)}: deleted; it had {tensors}"
        return Prose(heading, style="red")
    pending_text = f", {verification.pending} not computed yet" if verification.pending else ""
    verdict_word, style = ("intact", "green") if verification.intact else ("damaged", "red")
    file_text = (
        f" in {counted(verification.files, 'file')}" if verification.mirror is not None else ""
    )
    scope_text = f"{counted(verification.units, 'tensor')}{file_text} compared{pending_text}"
    rows = verification.damaged.items() if damaged is None else damaged
    lines = (Prose(printable("  " + ": ".join(filter(None, row)))) for row in rows)
    heading = f"{printable(verification.where)}: {verdict_word}, {scope_text}"
    recomputation_lines = (
        show_recomputation(verification.recomputed) if verification.recomputed is not None else ()
    )
    return Group(Prose(heading, style=style), *lines, *recomputation_lines)


def show_recomputation(recomputation: Recomputation) -> Iterator[RenderableType]:
    """Yield the result of computing blocks again: a verdict, differing tensors, possible causes."""
    block_count = counted(recomputation.blocks, "block")
    share_text = (
        "" if recomputation.blocks == recomputation.committed else f" of {recomputation.committed}"
    )
    if not recomputation.differing:
        yield Prose(
            f"{block_count}{share_text} computed again from the models: the same", style="green"
        )
        return
    tensor_count = counted(len(recomputation.differing), "tensor")
    yield Prose(
        f"{block_count}{share_text} computed again from the models: {tensor_count} differ",
        style="red",
    )
    for name, block in islice(recomputation.differing.items(), SHOWN):
        yield Prose(printable(f"  {name}: block {block}"))
    if (hidden_count := len(recomputation.differing) - SHOWN) > 0:
        yield Prose(f"  and {hidden_count} more")
    for path in recomputation.changed[:SHOWN]:
        yield Prose(
            printable(f"  {path} may have changed: its time or size is not what the run noted")
        )
    if not recomputation.changed:
        yield Prose(
            "  The files of the models are as the run noted: a library or the processor computes"
            " otherwise than where this was merged, or the ledger was changed."
        )


def repair_advice(verification: Verification, state_dir: Path | None) -> tuple[list[str], str]:
    """Return advice on how to repair the damage.

    Returns:
        Lines for a person, and the command, to be printed last.
    """
    if verification.mirror is not None and verification.remake:
        text = (
            "`resumerge resume` repairs it on the machine that made it. On any other machine, this"
            " computes everything again, with the recipe and a new output:"
        )
        return [text], remake_command(verification.mirror)
    if verification.mirror is not None and not verification.marked:
        return ["To compute again what is damaged there:"], mirror_command(verification.mirror)
    if verification.linked:
        files = ", ".join(map(printable, verification.linked[:SHOWN]))
        return [
            f"A file of a model is damaged, of which the output has another name (--link): {files}."
            " Restore it from where it came from. To look again then:"
        ], verify_command(verification.run, state_dir)
    lines = ["To compute the damaged tensors again:"]
    if not verification.marked:
        cause = "another process is using the run, or its ledger is read-only"
        lines.insert(
            0, f"The damage is not recorded in the ledger: {cause}. Run verify again first."
        )
    return lines, resume_command(verification.run, state_dir)
