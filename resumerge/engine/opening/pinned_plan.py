"""Planning with pinned sources: the versions that a run was created with, not the newest ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from resumerge.accounts import account
from resumerge.engine.checks.accounts import problems_of_accounts
from resumerge.engine.checks.cluster import most_shards_here
from resumerge.engine.context import RunContext
from resumerge.engine.opening.open_sources import in_order, open_sources, with_place
from resumerge.engine.opening.plan_notes import notes_for_user
from resumerge.engine.opening.planning_options import PlanningOptions
from resumerge.engine.opening.stage_models import StageModels
from resumerge.engine.opening.streamed_sources import problems_of_streaming
from resumerge.engine.resources.collector import collector_paused
from resumerge.errors import InputError, Problem
from resumerge.options import SHARD_SIZE
from resumerge.output.gguf import problems_of_types, with_gguf
from resumerge.output_path import STEM, OutputPath
from resumerge.planning import Estimate, Plan, check_recipe, estimate
from resumerge.planning.other_outputs.adapters import with_ranks
from resumerge.planning.stage_results.kept import names_to_keep, problems_of_kept, with_kept
from resumerge.planning.stage_results.spilled import with_spilled
from resumerge.planning.written.sweeps import (
    plan_of_results,
    problems_of_equal_variants,
    problems_of_sweep,
)
from resumerge.recipe import ModelRef, Recipe
from resumerge.sources.remote.files import uncached
from resumerge.sources.types import Source, numbered

NO_PINS: Mapping[str, dict[str, Any]] = {}
NO_RANKS: Mapping[str, int] = {}


@collector_paused()
def pinned_plan(
    context: RunContext,
    recipe: Recipe,
    out: OutputPath | None = None,
    pins: Mapping[str, dict[str, Any]] = NO_PINS,
    created_with: Mapping[str, Any] = NO_PINS,
    ranks: Mapping[str, int] = NO_RANKS,
) -> tuple[Plan, Estimate]:
    """Open the sources at their pins, plan every document of the recipe, and estimate the plan.

    The recipe is checked first, then the local models, then the remote models.

    Args:
        context: its options take precedence over `created_with`; its reporter shows what is being
            done.
        recipe: the recipe as it was read, which is checked here.
        out: the run's output; None if the command names no output.
        pins: the `revision` or `path` of each model, by the text of its reference.
        created_with: the options that the run was created with.
        ranks: the ranks that the modules of an extracted adapter have in the run, by module.

    Returns:
        (plan, estimate). No other function estimates the whole plan.

    Raises:
        InputError: the recipe or its models have problems. The error has all that were found.
        Resumable: the network failed.
    """
    context.reporter.doing("opening the models and planning")
    options = context.options
    planning_options = PlanningOptions.of(options, created_with)
    is_file, is_gguf = out is not None and out.is_file, out is not None and out.is_gguf
    if recipe.extraction is not None and out is not None and is_file:
        raise InputError([_no_folder(recipe, out)])
    problems = [
        *check_recipe(recipe),
        *problems_of_types(recipe, is_gguf=is_gguf),
        *problems_of_sweep(recipe, is_file=is_file),
    ]
    stages = StageModels(context, numbered(_open(context, recipe, pins, problems)))
    plans: list[Plan] = []
    try:
        plans.extend(_plans_of_results(context, recipe, out, stages, planning_options, ranks))
    except InputError as error:
        document_problems = (with_place(recipe, problem) for problem in error.problems)
        problems += [problem for problem in document_problems if problem not in problems]
    stages_to_keep = names_to_keep(
        recipe, planning_options.keep, every=options.intermediate_dir is not None
    )
    if not problems:
        plan = plan_of_results(recipe, plans)
        problems += problems_of_equal_variants(plan)
        problems += problems_of_kept(plan, stages_to_keep, is_file=is_file)
        problems += problems_of_streaming(plan) if options.stream else []
    if problems:
        raise in_order(problems)
    plan = _with_accounts(with_kept(plan, stages_to_keep), strict=bool(options.strict))
    plan = with_spilled(plan, planning_options.materialize)
    plan_estimate = estimate(plan, options.mirror, most_shards_here(context))
    notes = tuple(notes_for_user(context, plan, plan_estimate, out))
    return replace(plan, notes=notes, shard_size=_shard_size(plan)), plan_estimate


def _open(
    context: RunContext,
    recipe: Recipe,
    pins: Mapping[str, dict[str, Any]],
    problems: list[Problem],
) -> dict[ModelRef, Source]:
    """Open the sources of a recipe, and append the problems of its models to `problems`."""
    options = context.options
    sources = open_sources(
        recipe, pins, problems, context.metadata, options.offline, context.reporter.note
    )
    sources = {
        ref: replace(source, streams=bool(options.stream), linked=options.link)
        for ref, source in sources.items()
    }
    if options.stream and options.ray is not None:  # tasks stream files even if they are cached
        return {ref: uncached(source) for ref, source in sources.items()}
    return sources


def _plans_of_results(
    context: RunContext,
    recipe: Recipe,
    out: OutputPath | None,
    stages: StageModels,
    planning_options: PlanningOptions,
    ranks: Mapping[str, int],
) -> Iterator[Plan]:
    """Yield the plan of each result of a recipe, after planning the recipe's stages.

    Raises:
        InputError: a document has problems. The documents after it are not planned.
    """
    is_file = out is not None and out.is_file
    plan_document = partial(
        stages.plan,
        seed=planning_options.seed,
        shard_size=planning_options.shard_size or (SHARD_SIZE if is_file else None),
        unshared=planning_options.unshared,
        stem=out.model if out is not None and is_file else STEM,
    )
    for document in recipe.documents:
        plan = plan_document(document)
        if plan.adapter and plan.adapter.highest and ranks:
            plan = with_ranks(plan, ranks)
        if plan.adapter and (problems := _problems_of_adapter(recipe, document, out)):
            raise InputError(problems)
        if any(document is stage for stage in recipe.stages):
            stages.add(plan)
        elif out is not None and out.is_gguf:
            offline = context.options.offline
            yield with_gguf(plan, recipe, out.path.name, context.metadata, offline=offline)
        else:
            yield plan


def _shard_size(plan: Plan) -> int | None:
    """Return the shard size of the whole plan; None if a part keeps a model's weight files."""
    parts = (plan, *plan.stages, *plan.variants.values())
    return None if any(part.shard_size is None for part in parts) else plan.shard_size


def _problems_of_adapter(recipe: Recipe, document: Recipe, out: OutputPath | None) -> list[Problem]:
    """Return the problems of an output that is an adapter: a single file, or other documents."""
    problems = [_no_folder(recipe, out)] if out is not None and out.is_file else []
    if recipe.variants or (recipe.stages and document.extraction is None):
        problems.append(
            document.problem(
                "A recipe that combines adapters has one document, and no sweep",
                "models",
                expected="adapters, each in files",
                found="a sweep" if recipe.variants else "other documents beside it",
                fix="Run each variant as a recipe of its own"
                if recipe.variants
                else "Run the other documents first, and name the output here",
            )
        )
    return problems


def _no_folder(recipe: Recipe, out: OutputPath) -> Problem:
    return recipe.problem(
        "An adapter is a folder, of tensors and their config",
        "extract_lora" if recipe.extraction else "models",
        expected="the name of a folder",
        found=str(out),
        fix="Name the output without the ending",
    )


def _with_accounts(plan: Plan, *, strict: bool) -> Plan:
    """Return the plan with the accounts of all tensors of the models.

    Raises:
        InputError: tensors are unused that must not be left out.
    """
    left_out = (
        tensor
        for part in (*plan.stages, *(plan.variants.values() or [plan]))
        for tensor in part.left_out
    )
    accounts = account(plan.sources, (unit.expression for unit in plan.units), left_out)
    problems = problems_of_accounts(accounts, strict=strict)
    if placed_problems := [with_place(plan.recipe, problem) for problem in problems]:
        raise in_order(placed_problems)
    return replace(plan, accounts=accounts)
