"""Stages of a recipe that are read like models. Their tensors are computed but not written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from resumerge.accounts import account
from resumerge.engine.checks.accounts import problems_of_accounts
from resumerge.engine.context import RunContext
from resumerge.engine.opening.open_sources import in_order, open_sources, with_place
from resumerge.engine.opening.stage_models import StageModels, unshared_of
from resumerge.errors import InputError, Problem
from resumerge.options import SEED
from resumerge.planning import Plan, Unshared, check_recipe
from resumerge.recipe import ModelRef, Recipe
from resumerge.recipe.spelling import misspelled
from resumerge.recipe.stages import stages_alone
from resumerge.sources import Source, open_source
from resumerge.sources.index import ADAPTER
from resumerge.sources.types import numbered
from resumerge.tensors import steps_of


@dataclass(frozen=True)
class OpenedStages:
    """Stages of a recipe, and the sources that they are computed from.

    Args:
        models: the stages, with or without an adapter, by their references.
        sources: the stored models and adapters that the stages are computed from. The number of a
            source is its index in this tuple.
        plans: the plans of these stages, and of the stages that they need.
        count: the number of numbered models. Larger numbers, and this number itself, are free.
    """

    models: Mapping[ModelRef, Source] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    plans: tuple[Plan, ...] = ()
    count: int = 0

    def notes(self) -> Iterator[str]:
        """Yield the notes that a run would show about the stages."""
        for plan in self.plans:
            yield from (f"{plan.recipe.name}: {note}" for note in plan.notes)


NO_STAGES = OpenedStages()


def open_stages(
    context: RunContext, recipe: Recipe, references: Sequence[ModelRef]
) -> OpenedStages:
    """Open the stages among these references. Remote files without a local copy are streamed.

    Only these stages, and the stages that they need, are planned.

    Args:
        context: the command's context. Its options apply to the plans, as in a run.
        recipe: the recipe with the stages.
        references: references to models, some of which are stages of the recipe.

    Raises:
        InputError: no reference is a stage, a reference is probably a misspelled stage, a stage
            cannot be planned, or a stage needs steps, which only a run computes.
        Resumable: the network failed.
    """
    stage_refs = [ref for ref in references if ref.parts[0].text in recipe.stage_names]
    if problems := [*_unknown(recipe, references, stage_refs)]:
        raise InputError(problems)
    needed_recipe = stages_alone(recipe, {ref.parts[0].text for ref in stage_refs})
    options = context.options
    problems = check_recipe(needed_recipe)
    opened_sources = open_sources(
        needed_recipe, {}, problems, context.metadata, options.offline, context.reporter.note
    )
    for adapter in (
        part for ref in stage_refs for part in ref.parts[1:] if part not in opened_sources
    ):
        opened_sources[adapter] = open_source(
            adapter, offline=options.offline, metadata=context.metadata, contents=ADAPTER
        )
    numbered_sources = numbered(
        {ref: replace(source, streams=True) for ref, source in opened_sources.items()}
    )
    stages, plans = StageModels(context, numbered_sources), []
    unshared = unshared_of(vars(options)) or Unshared.REFUSED
    for document in needed_recipe.documents if not problems else ():
        try:
            seed = SEED if options.seed is None else options.seed
            plans.append(stages.plan(document, seed=seed, unshared=unshared))
            stages.add(plans[-1])
        except InputError as error:
            problems += [with_place(needed_recipe, problem) for problem in error.problems]
            break
    if problems:
        raise in_order(problems)
    opened_models = {ref: stages.model(ref) for ref in stage_refs}
    opened_stages = OpenedStages(
        opened_models, tuple(numbered_sources.values()), tuple(plans), stages.count
    )
    if problems := [*_unused(opened_stages), *_with_steps(opened_stages)]:
        raise InputError(problems)
    return opened_stages


def _unknown(
    recipe: Recipe, references: Sequence[ModelRef], named: Sequence[ModelRef]
) -> Iterator[Problem]:
    """Yield a problem if a reference is probably a misspelled stage, or no reference is a stage."""
    stage_names = [stage.name for stage in recipe.stages]
    for ref in references:
        text = ref.parts[0].text
        similar_name = (
            misspelled(text, stage_names) if "/" not in text and ref not in named else None
        )
        if similar_name is not None:
            yield Problem(
                f"No stage of the recipe has the name {text!r}",
                where=recipe.file,
                expected=f"the name of a stage ({', '.join(stage_names)}), or a model",
                found=text,
                fix=f"write '{similar_name}'; or './{text}' for a folder, and org/name for a model "
                "on the Hub",
            )
            return
    if not named:
        yield Problem(
            "No model is a stage of the recipe",
            where=recipe.file,
            expected=f"a stage: {', '.join(stage_names)}"
            if stage_names
            else "a recipe of several documents, with names",
            found=", ".join(ref.text for ref in references),
            fix="name a stage, or leave the recipe out",
        )


def _unused(stages: OpenedStages) -> Iterator[Problem]:
    """Yield a problem for each model with unused tensors for which a run would be refused."""
    written_tensors = (unit.expression for plan in stages.plans for unit in plan.units)
    read_tensors = (tensor for model in stages.models.values() for tensor in model.tensors.values())
    left_out_tensors = (tensor for plan in stages.plans for tensor in plan.left_out)
    accounts = account(stages.sources, (*written_tensors, *read_tensors), left_out_tensors)
    yield from problems_of_accounts(accounts, strict=False)


def _with_steps(stages: OpenedStages) -> Iterator[Problem]:
    for ref, model in stages.models.items():
        steps = {step for tensor in model.tensors.values() for step in steps_of(tensor)}
        for step in sorted(steps, key=lambda step: step.key)[:1]:
            yield Problem(
                f"The stage {ref} cannot be read without being written: it needs "
                f"{step.title.partition(',')[0]}",
                where=ref.text,
                expected="a stage that is computed from ranges of its models",
                found="one of which a part is computed from whole models first",
                fix="keep it (run … --keep NAME), and compare the folder OUT/stages/NAME",
            )
