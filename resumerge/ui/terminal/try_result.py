"""``resumerge try`` for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType

from resumerge.documents.try_model import Fit, TryResult
from resumerge.printable import printable
from resumerge.sizes import counted
from resumerge.ui.terminal.prose import Prose

SHOWN = 5
"""The most missing tensors that are listed."""


def show_try_result(found: TryResult) -> RenderableType:
    """Return the verdict, the generated text, and how well each model predicts the text file."""
    return Group(*_lines(found))


def _lines(result: TryResult) -> Iterator[Prose]:
    model_path = printable(result.output)
    finite_text = "all logits are finite" if result.finite else "some logits are not finite numbers"
    yield Prose(f"{model_path}: {finite_text}", style="green" if result.sound else "red")
    if result.missing:
        names = ", ".join(result.missing[:SHOWN]) + ", …" * (len(result.missing) > SHOWN)
        missing_text = f"{counted(len(result.missing), 'tensor')} of the model are missing: {names}"
        yield Prose(printable(missing_text), style="red")
    yield Prose(f"{counted(result.tokens, 'token')} after {printable(result.prompt)!r}:")
    yield Prose(printable(f"  {result.text}"))
    if result.fits:
        yield Prose(f"How well {result.characters:,} characters of the text are predicted:")
        width = max(len(printable(fit.model)) for fit in result.fits)
        for fit in result.fits:
            yield Prose(f"  {printable(fit.model):<{width}}  {_shown(fit)}")
    for note in result.notes:
        yield Prose(printable(note))


def _shown(fit: Fit) -> str:
    tokens = counted(fit.tokens, "token")
    if fit.perplexity is None or fit.bits_per_byte is None:
        return f"not a finite number, {tokens}"
    return f"perplexity {fit.perplexity:.4g}, {fit.bits_per_byte:.3f} bits for each byte, {tokens}"
