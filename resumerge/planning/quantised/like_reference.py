"""``out_dtype: same``: each weight of the output is stored as the reference model stores it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from resumerge.errors import InputError, Problem
from resumerge.planning.quantised.quantised_output import QuantisedOutput
from resumerge.quantisation.output import stem_of
from resumerge.recipe import Recipe
from resumerge.sizes import counted
from resumerge.sources.types import Source, StoredForm, StoredWeight
from resumerge.tensors import Merged, Rounded, Stored, Tensor
from resumerge.tensors.target import Target, block_elements

SAME = "same"
"""The value of ``out_dtype``."""

SHOWN = 3
"""The most weights that a problem names."""


def check_like_reference(recipe: Recipe, reference: Source) -> Iterator[Problem]:
    """Yield a problem if the output cannot be quantised in the same way as the reference."""

    def problem(what: str, expected: str, found: str, fix: str) -> Problem:
        return recipe.problem(what, "out_dtype", expected=expected, found=found, fix=fix)

    if _form_of(reference) is None:
        yield problem(
            "The reference model is not quantised",
            "a quantised base model, or first model if there is no base",
            f"plain weights in {reference.ref}",
            "Write 'out_dtype: fp8_block' or another scheme, or a dtype of floats",
        )
    elif recipe.extract_expert is not None or any(m.stacked for m in recipe.modules):
        key = "extract_expert" if recipe.extract_expert is not None else "slices"
        yield problem(
            f"With {key} the output is not stored as {reference.ref} is",
            "the layers of the reference, with their names",
            f"{key}, and out_dtype: same",
            "Write 'out_dtype: fp8_block' or another scheme, which computes all scales anew",
        )


def _form_of(reference: Source) -> StoredForm | None:
    """Return the stored form of a quantised model; None for plain models, and for GGUF."""
    form = reference.carrier.stored
    return form if form and form.weights else None


def quantised_like_reference(
    recipe: Recipe, reference: Source, targets: Sequence[Target]
) -> tuple[list[Target], QuantisedOutput, list[str]]:
    """Return the tensors of the output, stored as the reference stores them.

    The stored tensors of an unchanged weight are copied byte by byte. The scales of activations and
    caches are also copied.

    Args:
        recipe: the recipe with ``out_dtype: same``, for the file and line of the error.
        reference: the reference model, for which `check_like_reference` yields no problem.
        targets: the output's tensors before quantisation.

    Returns:
        The tensors, their quantisation, and notes.

    Raises:
        InputError: a changed weight is stored in a form that this program does not write.
    """
    form = _form_of(reference)
    assert form is not None
    stored_tensors = reference.stored_tensors()
    quantised_targets, changed_names = list[Target](), list[str]()
    unwritten_kinds: dict[str, str] = {}
    for target in targets:
        weight = form.weights.get(target.name)
        if weight is None:
            quantised_targets.append(target)
        elif _is_unchanged(target.expression, reference.tensors[target.name]):
            quantised_targets += (_copied(stored_tensors[part]) for part in weight.parts)
        elif requantised_targets := _written(target, weight, stored_tensors):
            quantised_targets += requantised_targets
            changed_names.append(target.name)
        else:
            unwritten_kinds[target.name] = weight.kind
    if unwritten_kinds:
        raise InputError([_not_written(recipe, unwritten_kinds)])
    part_names = {part for weight in form.weights.values() for part in weight.parts}
    names_without_weight = [
        name for name in stored_tensors if name not in part_names and name not in reference.tensors
    ]
    quantised_targets += (_copied(stored_tensors[name]) for name in names_without_weight)
    tensors = frozenset({*part_names, *names_without_weight})
    kind = f"as in {reference.ref}: {form.quantised}"
    output = QuantisedOutput(
        SAME, kind, f"what loads {reference.ref} loads it", form.stated, tensors
    )
    copied_count = len(form.weights) - len(changed_names)
    return (
        quantised_targets,
        output,
        [_note(reference, changed_names, copied_count, names_without_weight)],
    )


def unrounded(tensor: Tensor) -> Tensor:
    """Return an output tensor before it is rounded to the model's dtype."""
    return tensor if isinstance(tensor, Merged) else tensor.exact


def _is_unchanged(tensor: Tensor, own: Tensor) -> bool:
    """Return whether an output tensor equals the reference's, apart from rounding."""
    while True:
        if isinstance(tensor, Rounded):
            tensor = tensor.operand
        elif isinstance(tensor, Merged) and _copies(tensor):
            [tensor] = tensor.operands
        else:
            return tensor is unrounded(own)


def _copies(merged: Merged) -> bool:
    return len(merged.operands) == 1 and merged.merge_method.is_copy(merged.context)


def _copied(stored: Stored) -> Target:
    shapes = {stored.name: stored.shape}
    block_size = block_elements(None)
    return Target(stored.name, stored.dtype, stored.shape, block_size, stored, shapes)


def _written(target: Target, weight: StoredWeight, stored: Mapping[str, Stored]) -> list[Target]:
    """Return the quantised tensors of a changed weight; empty if its form cannot be written."""
    layout = weight.written
    if layout is None or target.tensors != {target.name: target.shape}:
        return []
    stem = stem_of(target.name)
    new_names = [stem + name for name in (layout.codes, layout.scales, layout.factor) if name]
    quantised_target = layout.target(target, unrounded(target.expression))
    quantised_target = replace(
        quantised_target,
        tensors={name: stored[name].shape for name in new_names},
        dtypes={name: stored[name].dtype for name in new_names},
    )
    if 8 * quantised_target.nbytes % quantised_target.alignment:
        return []
    return [
        quantised_target,
        *(_copied(stored[part]) for part in weight.parts if part not in new_names),
    ]


def _not_written(recipe: Recipe, unwritten: Mapping[str, str]) -> Problem:
    name_texts = [f"{name} in {kind}" for name, kind in list(unwritten.items())[:SHOWN]]
    unnamed_count = len(unwritten) - len(name_texts)
    return recipe.problem(
        "Weights change that are stored in a way that is read, and not written",
        "out_dtype",
        expected="float8 (E4M3), INT4 without zero points or order, MXFP4, or NVFP4 of "
        "compressed-tensors, where weights change",
        found=", ".join(name_texts) + (f", and {unnamed_count} more" if unnamed_count else ""),
        fix="Write 'out_dtype: bfloat16', or fp8_block, int4 or another scheme for all weights",
    )


def _note(reference: Source, changed: Sequence[str], copied: int, beside: Sequence[str]) -> str:
    text = (
        f"{counted(len(changed), 'weight')} that {'changes' if len(changed) == 1 else 'change'} "
        f"{'is' if len(changed) == 1 else 'are'} quantised as {reference.ref} has them; the codes "
        f"and scales of {copied} are copied"
    )
    if beside:
        text += (
            f", and so are {counted(len(beside), 'tensor')} on activations and caches, which were "
            "measured on that model"
        )
    return text
