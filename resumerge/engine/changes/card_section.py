"""The section of the model card on the changes of the merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from resumerge.engine.changes.models import ModelChange, changes_of_models, root_of_ratio
from resumerge.engine.changes.units import UnitChanges, estimated
from resumerge.printable import code_span
from resumerge.sizes import counted


def card_section(changes: Sequence[UnitChanges]) -> list[str]:
    """Return the lines of the section; empty if no unit was measured against a reference."""
    models = changes_of_models(changes)
    if not models:
        return []
    return [
        "## What changed",
        "",
        "| model | beside | tensors merged | of them equal | elements that differ | cosine with "
        "the change |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_row(model) for model in models),
        "",
        " ".join(_sentences(changes)),
        "",
    ]


def _row(model: ModelChange) -> str:
    cells = (
        *(code_span(model.model, in_table=True), code_span(model.reference, in_table=True)),
        *(str(model.tensors), str(model.equal)),
        "" if model.differs is None else f"{model.differs:.1%}",
        "" if model.cosine is None else f"{model.cosine:.3f}",
    )
    return f"| {' | '.join(cells)} |"


def _sentences(changes: Sequence[UnitChanges]) -> Iterator[str]:
    moved, lost, intended, change = (
        estimated(changes, name) for name in ("moved", "lost", "intended", "change")
    )
    element_count = sum(unit.elements for unit in changes)
    if moved:
        yield f"Of the elements, {moved / element_count:.1%} were to change."
    if lost:
        types = ", ".join(sorted({c.dtype for c in changes if c.measurements["lost"]}))
        length_share = root_of_ratio(change, intended)
        length_text = (
            ""
            if length_share is None
            else f"; the whole change has {length_share:.1%} of its length"
        )
        yield f"Rounding to {types} took {lost / moved:.1%} of these changes away{length_text}."
    yield (
        f"Measured on the first elements of each block of {counted(len(changes), 'tensor')}; which "
        "tensors are equal is exact. These numbers do not say how good the model is."
    )
