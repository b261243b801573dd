"""The choice of the output's weights that are quantised, and their quantised tensors."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from resumerge.errors import InputError, Problem
from resumerge.layout import listed
from resumerge.planning.quantised.like_reference import (
    SAME,
    check_like_reference,
    quantised_like_reference,
    unrounded,
)
from resumerge.planning.quantised.quantised_output import QuantisedOutput
from resumerge.quantisation import OUTPUTS, OutputScheme
from resumerge.recipe import Recipe
from resumerge.sizes import counted
from resumerge.sources.adapters.orientation import Orientations, transposed_by
from resumerge.sources.tied_names import is_embedding
from resumerge.sources.tied_weights import is_head
from resumerge.sources.types import Source
from resumerge.tensors.dtypes import FLOATS
from resumerge.tensors.target import Target

_LAYER = re.compile(r"(^|\.)\d+\.")

_PLAIN = re.compile(
    r"(^|\.)(vision\w*|visual\w*|image\w*|audio\w*|router|\w*gate|\w*norm\w*|\w*embed\w*|\w*bias|"
    r"classifier|score)(\.|$)"
)
"""Modules that loaders expect unquantised: gates of experts, norms, tables, encoders of media."""

_FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("w1", "w3"))
"""Modules that inference servers fuse. Either all modules of a group are quantised, or none."""


def check_quantised(recipe: Recipe, reference: Source, *, flat: bool) -> Iterator[Problem]:
    """Yield a problem if the recipe asks for quantised weights and they cannot be quantised.

    Args:
        recipe: the recipe; without a scheme in its ``out_dtype`` there is no problem.
        reference: the model whose config the output has.
        flat: whether tensors are matched by name alone.
    """
    scheme_name = recipe.quantised_as
    if scheme_name is None:
        return

    def problem(what: str, expected: str, found: str, fix: str) -> Problem:
        return recipe.problem(what, "out_dtype", expected=expected, found=found, fix=fix)

    if recipe.name and not recipe.stages:
        yield problem(
            f"A stage cannot be written as {scheme_name}",
            "a stage in floats: only the result of a recipe is quantised",
            f"out_dtype: {scheme_name} in the document {recipe.name!r}",
            "Delete the line here; write it into the last document, which has no name",
        )
    elif flat or not reference.config:
        yield problem(
            f"Without a config.json no weights are written as {scheme_name}",
            "a config.json, which says what is quantised",
            f"none in {reference.ref}",
            "Delete 'out_dtype', or name a model with its config.json",
        )
    elif reference.components or reference.modules:
        yield problem(
            f"A model of several parts is not written as {scheme_name}",
            "a model of transformers",
            f"{reference.ref} is a pipeline, or a model of sentence-transformers",
            "Delete 'out_dtype', and quantise the output with its own library",
        )
    elif transposed_name := next(_transposed(reference), None):
        yield problem(
            "A model whose weights are stored as (inputs, outputs) is not written as "
            f"{scheme_name}",
            "linear layers, which loaders can quantise",
            f"{transposed_name} of {reference.ref}, which is a Conv1D",
            "Delete 'out_dtype'",
        )
    elif scheme_name == SAME:
        yield from check_like_reference(recipe, reference)


def quantised_output(
    recipe: Recipe, reference: Source, targets: Sequence[Target]
) -> tuple[list[Target], QuantisedOutput | None, list[str]]:
    """Return the tensors of the output, quantised as the recipe's ``out_dtype`` says.

    Args:
        recipe: the recipe, whose ``out_dtype`` may name a scheme.
        reference: the model whose config the output has.
        targets: the output's tensors before quantisation.

    Returns:
        The tensors, their quantisation (None if the output is not quantised), and notes.

    Raises:
        InputError: no weight fits the scheme, or a weight cannot be stored as in the reference.
    """
    scheme_name = recipe.quantised_as
    if scheme_name is None:
        return list(targets), None, []
    if scheme_name == SAME:
        return quantised_like_reference(recipe, reference, targets)
    scheme = OUTPUTS[scheme_name]
    unfit_reasons = _unfit(scheme, targets)
    output_targets, plain_modules = list[Target](), list[str]()
    for target in targets:
        if _is_linear(target) and target.name not in unfit_reasons:
            layout = scheme.layout_for_dtype(target.dtype)
            output_targets.append(layout.target(target, unrounded(target.expression)))
        else:
            output_targets.append(target)
            if _is_matrix(target):
                plain_modules += map(_module, target.tensors)
    unquantised_modules = sorted({"lm_head", *plain_modules})
    quantised_names = frozenset(
        name for target in output_targets if target.dtypes for name in target.tensors
    )
    if not quantised_names:
        found_text = (
            f"{unfit_reasons[min(unfit_reasons)]}: {min(unfit_reasons)}"
            if unfit_reasons
            else "none in the layers"
        )
        raise InputError(
            [
                recipe.problem(
                    f"No weight of the output can be written as {scheme_name}",
                    "out_dtype",
                    expected="weights of linear layers, of shapes that fit",
                    found=found_text,
                    fix="Delete 'out_dtype', or name another scheme",
                )
            ]
        )
    output = QuantisedOutput(
        scheme_name,
        scheme.kind,
        scheme.loaders,
        scheme.config(unquantised_modules),
        quantised_names,
    )
    return output_targets, output, _notes(output, output_targets, plain_modules, unfit_reasons)


def _transposed(reference: Source) -> Iterator[str]:
    orientations = Orientations(reference.tensors, default=False)
    for name, tensor in reference.tensors.items():
        if not name.endswith(".weight") or len(tensor.shape) != 2 or not _LAYER.search(name):
            continue
        is_transposed = transposed_by(reference.tensors.get(f"{_module(name)}.bias"), tensor)
        if is_transposed is None:
            is_transposed = not is_embedding(name) and orientations.is_transposed(name)
        if is_transposed:
            yield name


def _is_linear(target: Target) -> bool:
    """Return whether a tensor is the weight of a linear layer that loaders accept as quantised."""
    name = target.name
    return (
        target.tensors == {name: target.shape}
        and len(target.shape) == 2
        and target.dtype in FLOATS
        and name.endswith(".weight")
        and _LAYER.search(name) is not None
        and not (is_embedding(name) or is_head(name) or _PLAIN.search(_module(name)))
    )


def _is_matrix(target: Target) -> bool:
    """Return whether a tensor may be the plain weight of a linear layer or of packed experts."""
    return target.dtype in FLOATS and len(target.shape) > 1 and not is_embedding(target.name)


def _unfit(scheme: OutputScheme, targets: Sequence[Target]) -> dict[str, str]:
    """Return the reason why a weight stays unquantised, for each weight that does, by name.

    The weight, or a module that servers fuse with it, does not fit the scheme.
    """
    linear_targets = {target.name: target for target in targets if _is_linear(target)}
    unfit_reasons = {
        name: unfit_reason
        for name, target in linear_targets.items()
        if (unfit_reason := _why_unfit(scheme, target))
    }
    for name in list(unfit_reasons):
        stem, _, module = _module(name).rpartition(".")
        for group in _FUSED:
            fused_names = [f"{stem}.{sibling}.weight" for sibling in group if module in group]
            for fused_name in fused_names:
                if fused_name in linear_targets and fused_name not in unfit_reasons:
                    unfit_reasons[fused_name] = f"beside {module}, which is {unfit_reasons[name]}"
    return unfit_reasons


def _why_unfit(scheme: OutputScheme, target: Target) -> str:
    return scheme.layout_for_dtype(target.dtype).obstacle(target.shape)


def _module(name: str) -> str:
    return name.removesuffix(".weight")


def _notes(
    output: QuantisedOutput,
    targets: Sequence[Target],
    plain: Collection[str],
    unfit: Mapping[str, str],
) -> list[str]:
    """Return notes for the user on the quantisation."""
    quantised_count = sum(bool(target.dtypes) for target in targets)
    notes = [
        f"{counted(quantised_count, 'weight')} of linear layers are written as {output.kind} "
        f"(out_dtype: {output.name}); embeddings, the head, norms, biases and gates stay plain. "
        f"{output.loaders[0].upper()}{output.loaders[1:]}"
    ]
    if unfit:
        reasons = sorted(set(unfit.values()))
        notes.append(
            f"{counted(len(unfit), 'weight')} of linear layers stay plain, since their shapes do "
            f"not fit ({'; '.join(reasons[:3])}): {listed(sorted(unfit))}"
        )
    expert_modules = sorted(
        module for module in set(plain) if module.endswith(("gate_up_proj", "down_proj"))
    )
    if packed_modules := [module for module in expert_modules if ".experts." in module]:
        notes.append(f"packed experts stay plain: {listed(packed_modules)}")
    return notes
