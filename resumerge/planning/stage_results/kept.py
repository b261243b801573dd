"""Stages whose results are written beside the model, each as a model in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from resumerge.errors import Problem
from resumerge.output_path import STAGES, is_stage_folder
from resumerge.planning.plan import Plan
from resumerge.recipe import Recipe


def names_to_keep(recipe: Recipe, names: Sequence[str], *, every: bool) -> Sequence[str]:
    """Return the names of the stages that are kept: those that were given, or every stage's."""
    stages = [document.name for document in recipe.documents if document is not recipe]
    return stages if every else names


def with_kept(plan: Plan, names: Sequence[str]) -> Plan:
    """Return the plan, and after its own units and shards those of these stages.

    The stages are computed from what the model is computed from, and nothing is computed from them.
    """
    units, shards = list(plan.units), list(plan.shards)
    kept = [stage for stage in plan.stages if stage.recipe.name in names]
    for stage in kept:
        prefix, first_unit, first_shard = folder_of(stage), len(units), len(shards)
        units += (
            replace(
                unit,
                index=first_unit + unit.index,
                name=prefix + unit.name,
                shard=first_shard + unit.shard,
                tensors={prefix + name: shape for name, shape in unit.tensors.items()},
            )
            for unit in stage.units
        )
        shards += (
            replace(
                shard,
                index=first_shard + shard.index,
                name=prefix + shard.name,
                first=first_unit + shard.first,
                last=first_unit + shard.last,
            )
            for shard in stage.shards
        )
    kept_names = tuple(stage.recipe.name for stage in kept)
    written = (f"the result of {s.recipe.name} is written, too: to {folder_of(s)}" for s in kept)
    return replace(
        plan,
        units=tuple(units),
        shards=tuple(shards),
        kept=kept_names,
        notes=(*plan.notes, *written),
    )


def models_of(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Yield every model that a plan writes: its folder in the output, and the plan of it alone.

    The stages come first, so that the output is complete when the model is.
    """
    for stage in plan.stages:
        if stage.recipe.name in plan.kept:
            yield folder_of(stage), stage
    units, shards = len(plan.units), len(plan.shards)
    for stage in plan.stages:
        if stage.recipe.name in plan.kept:
            units, shards = units - len(stage.units), shards - len(stage.shards)
    yield "", replace(plan, units=plan.units[:units], shards=plan.shards[:shards], kept=())


def folder_of(stage: Plan) -> str:
    """Return the folder in the output where the result of a stage is: ``stages/NAME/``."""
    return f"{STAGES}/{stage.recipe.name}/"


def problems_of_kept(plan: Plan, names: Sequence[str], *, is_file: bool) -> Iterator[Problem]:
    """Yield why these stages cannot be kept.

    Args:
        plan: the plan.
        names: the names of the stages.
        is_file: whether the output is one file, not a folder.
    """
    stages = [stage.recipe.name for stage in plan.stages]
    for name in dict.fromkeys(names):
        if name not in stages:
            yield Problem(
                f"There is no stage {name!r} to keep",
                expected=", ".join(stages) or "a recipe of several documents, with names",
                found=f"--keep {name}",
                fix="name a document of the recipe, other than the last result"
                if stages
                else "leave out --keep",
            )
        elif not is_stage_folder(name):
            yield Problem(
                f"The stage {name!r} cannot be kept: its name is not a valid folder name "
                "on every system",
                expected="letters, digits, '_', '-' and '.', with no '-' or '.' in front",
                found=repr(name),
                fix="give it another name in the recipe",
            )
    folders = [name.lower() for name in dict.fromkeys(names)]
    if len(set(folders)) < len(folders):
        yield Problem(
            "Stages whose names differ only in case cannot both be kept",
            found=", ".join(names),
            fix="give them other names: some disks would have one folder for both",
        )
    if is_file and names:
        yield Problem(
            "Stages cannot be kept beside an output that is one file",
            expected="a folder as output, which has a place for them",
            found=f"--keep {names[0]}",
            fix="name a folder, or leave out --keep",
        )
