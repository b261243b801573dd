"""Warnings: sentences for the user on suspicious numbers of a merge. ``--strict`` refuses them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from resumerge.engine.changes.units import UnitChanges, estimated, exact, pairs
from resumerge.sizes import counted, some

SHOWN = 3
"""The most tensors that a warning names."""

MOST_LOST = 0.5
"""The largest share of a change that rounding may remove without a warning."""


def warnings_of(changes: Sequence[UnitChanges]) -> list[str]:
    """Return the warnings about the numbers, the worst first. Each has one or two sentences."""
    return [
        *_not_finite(changes),
        *_without_a_part(changes),
        *_lost_to_rounding([c for c in changes if not c.is_quantised]),
        *_lost_to_rounding([c for c in changes if c.is_quantised], quantised=True),
        *_equal(changes),
    ]


def _not_finite(changes: Sequence[UnitChanges]) -> Iterator[str]:
    """Yield warnings of numbers that are not finite, with the models they come from or a remedy."""
    not_finite_units = [c for c in changes if c.measurements["nans"] or c.inherited_infinities]
    if not_finite_units:
        counts = (
            int(exact(not_finite_units, "nans")),
            sum(c.inherited_infinities for c in not_finite_units),
        )
        kinds = [f"{n:,} {kind}" for n, kind in zip(counts, ("NaN", "infinite")) if n]
        sentence = (
            f"{' and '.join(kinds)} numbers are in {_tensors(not_finite_units)} of the output"
        )
        if source_names := sorted({name for c in not_finite_units for name in _sources_of(c)}):
            sentence += f". They are not finite in {', '.join(source_names)} either"
        yield sentence
    overflowing_units = [c for c in changes if c.measurements["overflows"]]
    if overflowing_units:
        type_names = sorted({c.dtype for c in overflowing_units})
        are_wide_types = all(
            c.is_quantised or c.dtype in ("BF16", "F32", "F64") for c in overflowing_units
        )
        remedy = (
            "Lower the weights" if are_wide_types else "Write the model with 'out_dtype: bfloat16'"
        )
        yield (
            f"{int(exact(overflowing_units, 'overflows')):,} numbers are too large for "
            f"{', '.join(type_names)}, in {_tensors(overflowing_units)}. {remedy}"
        )


def _sources_of(changes: UnitChanges) -> Iterator[str]:
    if changes.measurements["reference_not_finite"]:
        yield changes.reference
    for model, sums in changes.measurements.of_models():
        if sums["not_finite"]:
            yield model


def _without_a_part(changes: Sequence[UnitChanges]) -> Iterator[str]:
    """Yield a warning for each model whose tensors all equal the reference's tensors."""
    differing_pairs = {
        (c.reference, model)
        for c in changes
        for model, sums in c.measurements.of_models()
        if sums["equal"] < c.blocks
    }
    for reference, model in pairs(changes):
        if (reference, model) not in differing_pairs:
            yield (
                f"{model} contributed nothing: each of its tensors that is merged equals that of "
                f"{reference}"
            )


def _lost_to_rounding(changes: Sequence[UnitChanges], *, quantised: bool = False) -> Iterator[str]:
    """Yield a warning if rounding removed a larger share of the change than `MOST_LOST`.

    Units with overflows, or with numbers that are not finite, are ignored, because their lengths
    are not a measure of rounding. For quantised units, only the length of the whole change counts:
    if the change is small, most elements keep their codes, and the others change by more than was
    computed.
    """
    unfit_sums = ("nans", "infinities", "overflows", "reference_not_finite")
    changes = [c for c in changes if not any(c.measurements[name] for name in unfit_sums)]
    moved, lost, intended, change = (
        estimated(changes, name) for name in ("moved", "lost", "intended", "change")
    )
    few_elements_lost = quantised or lost <= MOST_LOST * moved
    if not lost or (few_elements_lost and change >= (1.0 - MOST_LOST) ** 2 * intended):
        return
    wider_type = "bfloat16" if quantised else "float32"
    type_names = ", ".join(sorted({c.dtype for c in changes if c.measurements["lost"]}))
    length_share = math.sqrt(change / intended) if intended else 0.0
    yield (
        f"About {lost / moved:.0%} of the elements that were to change did not: the change is "
        f"smaller than {type_names} can hold there (the length of the whole change is "
        f"{length_share:.0%} of what was computed). Write the model with 'out_dtype: {wider_type}'"
    )


def _equal(changes: Sequence[UnitChanges]) -> Iterator[str]:
    """Yield a warning of tensors that equal the reference's tensor, although a model differs."""
    equal_units = [c for c in changes if c.is_equal and c.is_meant_to_change]
    if equal_units:
        reference_names = ", ".join(sorted({c.reference for c in equal_units}))
        yield (
            f"{_tensors(equal_units)} of the output equal {reference_names}, although a model "
            "differs there"
        )


def _tensors(changes: Iterable[UnitChanges]) -> str:
    names = [c.name for c in changes]
    return f"{counted(len(names), 'tensor')} ({some(names, most=SHOWN)})"
