"""Every model in the form that is merged: experts in one layout, and the reference's names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from resumerge.errors import InputError
from resumerge.experts.extraction import extracted
from resumerge.experts.packed_experts import with_packed_experts
from resumerge.experts.separate_experts import Place, with_separate_experts
from resumerge.layout.expert_names import Aliases, Template, common, has_experts
from resumerge.methods import METHODS
from resumerge.recipe import ModelRef, Recipe
from resumerge.sources.types import Source


@dataclass(frozen=True)
class MixtureViews:
    """The models with their experts in the form that is merged.

    Args:
        sources: every model of the recipe in the form that is merged.
        notes: sentences on choices that have no effect, or a surprising effect.
        aliases: for each model, the names in its files of tensors that the view renames.
        places: the places of the reference's matrices in packed tensors of its files; empty
            without packed tensors.
        matrices: the names of an expert's matrices in each packed tensor that the view made from
            separate tensors of the reference's files.
    """

    sources: Mapping[ModelRef, Source]
    notes: list[str] = field(default_factory=list)
    aliases: Mapping[ModelRef, Aliases] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    matrices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        sources: Mapping[ModelRef, Source],
        reference: ModelRef,
        *,
        flat: bool = False,
    ) -> MixtureViews:
        """Return the models of a recipe with their experts as separate matrices, or packed.

        Experts are packed if the recipe contains ``experts: together``.

        Args:
            recipe: the recipe, whose `extract_expert`, ``experts: together`` and method decide the
                kind of views.
            sources: every model of the recipe, opened.
            reference: the model whose names the views use.
            flat: whether tensors are matched by their full names only, not by layers and parts.

        Raises:
            InputError: with ``extract_expert``, no dense model can be made of a model.
        """
        if recipe.extract_expert is not None:
            dense_models, notes, problems = extracted(recipe, sources)
            if problems:
                raise InputError(problems)
            return cls(dense_models, notes)
        if flat and not recipe.experts_together:
            return cls(sources)
        method = METHODS.get(recipe.merge_method)
        keeps_together, notes = recipe.experts_together, list[str]()
        if keeps_together and method is not None and method.whole_tensor:
            keeps_together = False
            notes.append(f"experts has no effect: {method.name} takes one matrix at a time")
        elif keeps_together and not any(map(has_experts, sources.values())):
            notes.append("experts has no effect: no layer has experts")
        views: dict[ModelRef, Source] = {}
        places: dict[ModelRef, dict[str, Place]] = {}
        matrix_names: dict[ModelRef, dict[str, tuple[str, ...]]] = {}
        for ref, source in sources.items():
            if keeps_together:
                views[ref], matrix_names[ref] = with_packed_experts(source)
            else:
                views[ref], places[ref] = with_separate_experts(source)
        aliases: dict[ModelRef, Aliases] = {}
        for ref, source in views.items():
            packed_by_matrix = {rest: place.packed for rest, place in places.get(ref, {}).items()}
            views[ref], renamed_rests = _named_like(source, views[reference])
            aliases[ref] = _aliases(packed_by_matrix, renamed_rests)
        merged_mixtures = [ref for ref in recipe.merged_models if has_experts(sources[ref])]
        if len(merged_mixtures) > 1:
            notes.append(
                "experts are merged by number, and routers like any tensor: that makes sense for "
                "mixtures that were trained from one"
            )
        return cls(
            views, notes, aliases, places.get(reference, {}), matrix_names.get(reference, {})
        )


def _named_like(source: Source, reference: Source) -> tuple[Source, dict[str, str]]:
    """Return a model with the reference's names for tensors that both models have.

    Returns:
        the model; and for each renamed tensor the model's own `rest`, by the reference's `rest`.
    """
    if source is reference or not has_experts(reference):
        return source, {}
    reference_rests = {Template.of(name).rest for name in reference.tensors}
    rest_by_common = {common(rest): rest for rest in reference_rests}
    tensors, renamed = {}, dict[str, str]()
    for name, tensor in source.tensors.items():
        template = Template.of(name)
        new_rest = rest_by_common.get(common(template.rest))
        if template.rest in reference_rests or new_rest is None:
            tensors[name] = tensor
        else:
            tensors[template.named(new_rest)] = tensor
            renamed[new_rest] = template.rest
    return (replace(source, tensors=tensors) if renamed else source), renamed


def _aliases(packed: Mapping[str, str], renamed: Mapping[str, str]) -> Aliases:
    aliases: dict[str, list[str]] = defaultdict(list)
    reference_rest_by_own = {
        own_rest: reference_rest for reference_rest, own_rest in renamed.items()
    }
    for reference_rest, own_rest in renamed.items():
        aliases[reference_rest].append(own_rest)
    for matrix, tensor in packed.items():
        aliases[reference_rest_by_own.get(matrix, matrix)].append(tensor)
    return aliases
