"""Plans whose output is a LoRA adapter: extracted from a model, or combined from adapters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from resumerge.combination import Combining, ContradictingParameters, Values, combine
from resumerge.errors import InputError, Problem
from resumerge.extraction import MadeAdapter, extract
from resumerge.extraction.differences import OpenTensors, open_tensors
from resumerge.layout import Layers
from resumerge.layout.model_views import ModelViews
from resumerge.methods import METHODS, MergeMethod
from resumerge.output_path import ADAPTER_STEM
from resumerge.planning.parameters import Parameters, check_parameters
from resumerge.planning.plan import Plan
from resumerge.planning.reference_files import notes_on_quantisation
from resumerge.planning.shards import pack
from resumerge.planning.tensor_specs import TensorSpec
from resumerge.recipe import ModelRef, Recipe
from resumerge.recipe.types import Extraction, Input
from resumerge.sources.adapters.adapter_names import has_matrices
from resumerge.sources.left_out import LeftOut
from resumerge.sources.types import Source, left_out_tensors
from resumerge.tensors import Factors
from resumerge.tensors.target import Target

ONE_FILE = {"": ADAPTER_STEM}
"""The stem of an adapter's only weight file. peft reads no other weight file."""

OF_MODELS = ("tokenizer", "chat_template", "experts_together", "extract_expert", "quantised_as")
"""Keys of a recipe that a combination of adapters cannot have."""


def plan_extraction(
    recipe: Recipe,
    extraction: Extraction,
    sources: Mapping[ModelRef, Source],
    *,
    seed: int,
    open_tensors: OpenTensors = open_tensors,
) -> Plan:
    """Plan the extraction of an adapter from the difference between a model and its base.

    Raises:
        InputError: the models do not fit, or the adapter would be empty or could not be loaded.
        Resumable: a file cannot be read now.
    """
    models = ModelViews(sources, extraction.model)
    adapter, targets, notes, left_out = extract(
        recipe, extraction, models, seed=seed, open_tensors=open_tensors
    )
    quantisation_notes = [
        note for source in sources.values() for note in notes_on_quantisation(source)
    ]
    layers = models.layers[extraction.model]
    reference = sources[extraction.model]
    return _plan(
        recipe,
        sources,
        reference,
        layers,
        adapter,
        targets,
        [*notes, *quantisation_notes],
        left_out,
        seed,
    )


def with_ranks(plan: Plan, chosen: Mapping[str, int]) -> Plan:
    """Return the plan of an extracted adapter with the ranks that were chosen from its weights.

    The adapter remains the same, so the fingerprint and the shard size do not change.

    Args:
        plan: the plan in which every module has the highest rank that it may get.
        chosen: the rank of each module, by the module's name. A module that is missing keeps the
            rank that it has in the plan.
    """
    assert plan.adapter is not None
    adapter = plan.adapter.with_ranks(chosen)
    targets = [
        Target(
            name=unit.name,
            dtype=unit.dtype,
            shape=unit.shape,
            block_elements=unit.block_elements,
            expression=unit.expression,
            tensors=unit.tensors,
        )
        for unit in plan.units
    ]
    targets = [_with_rank(target, adapter.ranks) for target in targets]
    assert plan.shard_size is not None
    units, shards = pack(targets, plan.shard_size, ONE_FILE)
    return replace(plan, units=units, shards=shards, adapter=adapter)


def _with_rank(target: Target, ranks: Mapping[str, int]) -> Target:
    if not isinstance(target.expression, Factors):
        return target
    factors = target.expression.with_rank(ranks[target.name])
    width = len(factors.pairs) * factors.rank
    (a, shape_a), (b, shape_b) = target.tensors.items()
    shapes = {a: (width, *shape_a[1:]), b: (shape_b[0], width, *shape_b[2:])}
    return replace(
        target,
        shape=factors.shape,
        block_elements=factors.numel,
        expression=factors,
        tensors=shapes,
    )


def plan_combination(
    recipe: Recipe, sources: Mapping[ModelRef, Source], method: MergeMethod, *, seed: int
) -> Plan:
    """Plan an adapter that combines other adapters, without their base model.

    Raises:
        InputError: the adapters cannot be combined; holds every problem that was found.
    """
    problems = [*_problems(recipe, sources, method)]
    if problems:
        raise InputError(problems)
    parameter_problems, notes = check_parameters(recipe, method)
    parameters = Parameters(recipe, method, valid=not parameter_problems)
    [slice_] = recipe.slices
    inputs = slice_.inputs

    def values_of(name: str, position: float) -> Values:
        spec = TensorSpec(name, slice_, (name,) * len(inputs), position, recipe.modules[0], name)
        input_values = (
            parameters.of_input(spec, input_, (name,), is_base=False) for input_ in inputs
        )
        return Values(parameters.of_merge(spec, (name,)), tuple(input_values))

    combining = Combining(method, tuple(i.model.text for i in inputs), recipe.rank, seed)
    adapters = [(input_, sources[input_.model]) for input_ in inputs]
    try:
        adapter, targets, combination_notes, left_out = combine(
            recipe, adapters, combining, values_of
        )
    except ContradictingParameters as error:
        raise InputError([*parameter_problems, *parameters.problems] or error.problems) from None
    except InputError as error:
        raise InputError([*parameter_problems, *parameters.problems, *error.problems]) from None
    if problems := [*parameter_problems, *parameters.problems]:
        raise InputError(problems)
    notes = [*METHODS.notes_on(method.name), *notes, *combination_notes]
    reference = sources[inputs[0].model]
    return _plan(
        recipe, sources, reference, Layers({}, None), adapter, targets, notes, left_out, seed
    )


def is_combination(recipe: Recipe, sources: Mapping[ModelRef, Source]) -> bool:
    """Return whether a recipe combines adapters: whether it lists an adapter as a model."""
    return recipe.has_method and any(sources[ref].is_adapter for ref in recipe.merged_models)


def rank_of_models(recipe: Recipe) -> Iterator[Problem]:
    """Yield a problem if a recipe that merges models states a rank, which only adapters have."""
    if recipe.rank is not None:
        yield recipe.problem(
            "A rank is of adapters that are combined",
            "rank",
            expected="models that are adapters alone",
            found=f"rank: {recipe.rank}, and models",
            fix="Delete the line; or name adapters, without their model before them",
        )


def _problems(
    recipe: Recipe, sources: Mapping[ModelRef, Source], method: MergeMethod
) -> Iterator[Problem]:
    """Yield the problems of combining adapters that are found without reading their tensors."""
    adapter_refs = [ref for ref in recipe.merged_models if sources[ref].is_adapter]
    model_refs = [ref for ref in recipe.merged_models if not sources[ref].is_adapter]
    if (first_model := next(iter(model_refs), None)) and has_matrices(sources[first_model].tensors):
        yield recipe.problem(
            f"{first_model} is an adapter without an adapter_config.json",
            recipe.path_of(first_model),
            expected="adapters that peft saved, which alone are combined",
            found="a file of matrices, whose options are not known",
            fix="write each adapter after its model, like model+adapter",
        )
        return
    if model_refs:
        example = f"{recipe.base_model or model_refs[0]}+{adapter_refs[0]}"
        yield recipe.problem(
            f"{adapter_refs[0]} is an adapter, and {model_refs[0]} is none",
            recipe.path_of(adapter_refs[0]),
            expected="models; or adapters alone, without 'base_model', which make an adapter",
            found=f"{len(adapter_refs)} of {len(recipe.merged_models)} are adapters",
            fix=f"this is an adapter: write it after the model that it was trained on, like "
            f"{example}; or delete the other models, to get an adapter",
        )
        return
    if not method.combines_changes:
        yield recipe.problem(
            f"{method.name} does not combine adapters: it needs the weights that they change",
            "merge_method",
            expected=", ".join(name for name, m in METHODS.items() if m.combines_changes),
            found=method.name,
            fix="Choose one of these; or write each adapter after its model, like model+adapter",
        )
        return
    if recipe.modules[0].stacked or recipe.modules[0].name is not None:
        yield recipe.problem(
            "Adapters are combined whole",
            "modules" if recipe.modules[0].name is not None else "slices",
            expected="models: a list of adapters",
            found="slices or modules",
            fix="Write 'models:' and below it each adapter; filters choose parameters for modules",
        )
    if recipe.base_model is not None:
        yield recipe.problem(
            "Adapters are combined without their base model",
            "base_model",
            expected="no base_model",
            found=str(recipe.base_model),
            fix="Delete the line; or write each adapter after its model, like model+adapter",
        )
    for key in OF_MODELS:
        if getattr(recipe, key) not in (None, False):
            name = {"experts_together": "experts", "quantised_as": "out_dtype"}.get(key, key)
            yield recipe.problem(
                f"The recipe combines adapters, and {name!r} is of models",
                name,
                expected="no such line",
                found=str(getattr(recipe, key))[:60],
                fix="Delete the line; or write each adapter after its model, like model+adapter",
            )
    yield from _check_count(recipe, method, recipe.slices[0].inputs)


def _check_count(recipe: Recipe, method: MergeMethod, inputs: Sequence[Input]) -> Iterator[Problem]:
    """Check the number of adapters.

    A base model that the method requires counts in its `fewest` and `most`, but not as an adapter.
    """
    needs_base = method.base == "required"
    fewest_adapters = max(1, method.fewest - needs_base)
    most_adapters = method.most and method.most - needs_base
    if len(inputs) < fewest_adapters or (most_adapters is not None and len(inputs) > most_adapters):
        expected_count = (
            f"exactly {most_adapters}"
            if most_adapters == fewest_adapters
            else f"at least {fewest_adapters}"
        )
        if most_adapters is not None and len(inputs) > most_adapters > fewest_adapters:
            expected_count = f"at most {most_adapters}"
        yield recipe.problem(
            f"{method.name} takes {expected_count} adapter{'s' * (expected_count[-1] != '1')}",
            "models",
            expected=expected_count,
            found=str(len(inputs)),
            fix="Add or remove adapters, or choose another merge_method",
        )


def _plan(
    recipe: Recipe,
    sources: Mapping[ModelRef, Source],
    reference: Source,
    layers: Layers,
    adapter: MadeAdapter,
    targets: list[Target],
    notes: Sequence[str],
    left_out: Sequence[LeftOut],
    seed: int,
) -> Plan:
    total_bytes = sum(target.nbytes for target in targets)
    units, shards = pack(targets, total_bytes, ONE_FILE)
    source_notes = [note for source in sources.values() for note in source.notes]
    return Plan(
        recipe=recipe,
        sources=tuple(sources.values()),
        reference=reference.number,
        layers=layers,
        layer_maps=(),
        units=units,
        shards=shards,
        seed=seed,
        shard_size=total_bytes,
        notes=tuple(dict.fromkeys([*recipe.notes, *source_notes, *notes])),
        adapter=adapter,
        left_out=(*left_out, *left_out_tensors(sources.values())),
    )
