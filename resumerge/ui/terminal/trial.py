"""``resumerge try`` for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType

from resumerge.documents.trial import Fit, Trial
from resumerge.printable import printable
from resumerge.sizes import counted
from resumerge.ui.terminal.prose import Prose

SHOWN = 5
"""The most missing tensors that are listed."""


def show_trial(found: Trial) -> RenderableType:
    """Return the verdict, the generated text, and how well each model predicts the text file."""
    return Group(*_lines(found))


def _lines(trial: Trial) -> Iterator[Prose]:
    where = printable(trial.output)
    finite = "all logits are finite" if trial.finite else "some logits are not finite numbers"
    yield Prose(f"{where}: {finite}", style="green" if trial.sound else "red")
    if trial.missing:
        names = ", ".join(trial.missing[:SHOWN]) + ", …" * (len(trial.missing) > SHOWN)
        missing = f"{counted(len(trial.missing), 'tensor')} of the model are missing: {names}"
        yield Prose(printable(missing), style="red")
    yield Prose(f"{counted(trial.tokens, 'token')} after {printable(trial.prompt)!r}:")
    yield Prose(printable(f"  {trial.text}"))
    if trial.fits:
        yield Prose(f"How well {trial.characters:,} characters of the text are predicted:")
        width = max(len(printable(fit.model)) for fit in trial.fits)
        for fit in trial.fits:
            yield Prose(f"  {printable(fit.model):<{width}}  {_shown(fit)}")
    for note in trial.notes:
        yield Prose(printable(note))


def _shown(fit: Fit) -> str:
    tokens = counted(fit.tokens, "token")
    if fit.perplexity is None or fit.bits_per_byte is None:
        return f"not a finite number, {tokens}"
    return f"perplexity {fit.perplexity:.4g}, {fit.bits_per_byte:.3f} bits for each byte, {tokens}"
