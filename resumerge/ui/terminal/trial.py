"""``resumerge try`` for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType

from resumerge.documents.trial import Fit, Trial
from resumerge.printable import printable
from resumerge.sizes import counted
from resumerge.ui.terminal.prose import Prose

SHOWN = 5
"""The most names of missing tensors that are listed."""


def show_trial(found: Trial) -> RenderableType:
    """Return the verdict, what was generated, and how well each model predicts the text."""
    return Group(*_lines(found))


def _lines(found: Trial) -> Iterator[Prose]:
    where = printable(found.output)
    finite = "all logits are finite" if found.finite else "some logits are not finite numbers"
    yield Prose(f"{where}: {finite}", style="green" if found.sound else "red")
    if found.missing:
        names = ", ".join(found.missing[:SHOWN]) + ", …" * (len(found.missing) > SHOWN)
        lacking = f"{counted(len(found.missing), 'tensor')} of the model are missing: {names}"
        yield Prose(printable(lacking), style="red")
    yield Prose(f"{counted(found.tokens, 'token')} after {printable(found.prompt)!r}:")
    yield Prose(printable(f"  {found.text}"))
    if found.fits:
        yield Prose(f"How well {found.characters:,} characters of the text are predicted:")
        width = max(len(printable(fit.model)) for fit in found.fits)
        for fit in found.fits:
            yield Prose(f"  {printable(fit.model):<{width}}  {_shown(fit)}")
    for note in found.notes:
        yield Prose(printable(note))


def _shown(fit: Fit) -> str:
    tokens = counted(fit.tokens, "token")
    if fit.perplexity is None or fit.bits_per_byte is None:
        return f"not a finite number, {tokens}"
    return f"perplexity {fit.perplexity:.4g}, {fit.bits_per_byte:.3f} bits for each byte, {tokens}"
