"""Notes on a planned output: tensors that were matched by another name, copied, or left out."""

from __future__ import annotations

from collections.abc import Iterator

from resumerge.experts.views import MixtureViews
from resumerge.experts.written_experts import note_on_packed_files
from resumerge.layout import listed
from resumerge.layout.model_views import ModelViews
from resumerge.planning.expressions import OutputTargets
from resumerge.planning.module_matches import MatchedModules
from resumerge.planning.parameters import notes_on_filters
from resumerge.planning.tensor_specs import OutputSpecs
from resumerge.recipe import Recipe
from resumerge.sizes import counted
from resumerge.sources.tied_names import tied_names


def notes_on_tensors(
    recipe: Recipe,
    models: ModelViews,
    mixtures: MixtureViews,
    matched_modules: MatchedModules,
    output_specs: OutputSpecs,
    targets: OutputTargets,
) -> Iterator[str]:
    """Yield a note on each way in which the output's tensors are not simply those of the models.

    Args:
        recipe: the recipe, whose filters are compared with the tensors' names.
        models: the models; their tensors are looked up by the reference's names.
        mixtures: the same models, with their experts in one form.
        matched_modules: the recipe's modules, matched with parts of the models.
        output_specs: the tensors of the output, and those that it does not use.
        targets: the tensors of the output with their expressions.
    """
    reference = models.reference
    yield from notes_on_filters(recipe, models)
    for part in matched_modules.unnamed:
        yield f"{part.name} is not among the modules: it is copied from {reference}"
    tied = tied_names(models.sources[reference].config, models.sources[reference].tensors)
    if untied_names := [target.name for target in targets.as_named if target.name in tied]:
        yield (
            f"the output does not tie its head to its embedding, as {reference} does: a model "
            f"has a head of its own, or they come from different slices ({listed(untied_names)})"
        )
    for layer_map in matched_modules.layer_maps:
        unsliced_stacks = [s for s in models.layers[reference].counts if s != layer_map.stack]
        if unsliced_stacks and matched_modules.modules[0][0].name is None:
            yield (
                f"slices choose layers of {layer_map.stack}; {', '.join(unsliced_stacks)} are "
                "merged as in the first slice"
            )
    for ref in models.sources:
        for rename in models.renames(ref):
            yield f"tensors of {ref} are matched by name, with {rename}"
        if unused_names := output_specs.unused.get(ref):
            yield (
                f"{ref} has {counted(len(unused_names), 'tensor')} that {reference} lacks; "
                f"the output leaves out {listed(sorted(unused_names))}"
            )
    yield from note_on_packed_files(targets.as_stored, mixtures, reference)
