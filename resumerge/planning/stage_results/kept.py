"""Kept stages: their results are written beside the model, each as a model in its own folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from resumerge.errors import Problem
from resumerge.output_path import is_stage_folder, twin_of
from resumerge.planning.plan import Plan
from resumerge.planning.written.models import stage_folder, with_models
from resumerge.recipe import Recipe


def names_to_keep(recipe: Recipe, names: Sequence[str], *, every: bool) -> Sequence[str]:
    """Return the names of the stages to keep: of all stages if `every`, and otherwise `names`."""
    return [stage.name for stage in recipe.stages] if every else names


def with_kept(plan: Plan, names: Sequence[str]) -> Plan:
    """Return the plan with the units and shards of these stages after its own.

    Kept stages are computed from the sources, like the model; the model is not computed from the
    kept files.
    """
    stages_by_folder = {
        stage_folder(stage): stage for stage in plan.stages if stage.recipe.name in names
    }
    kept_notes = (
        f"the result of {stage.recipe.name} is written, too: to {folder}"
        for folder, stage in stages_by_folder.items()
    )
    return replace(
        with_models(plan, stages_by_folder.items()),
        kept=tuple(stage.recipe.name for stage in stages_by_folder.values()),
        notes=(*plan.notes, *kept_notes),
    )


def problems_of_kept(plan: Plan, names: Sequence[str], *, is_file: bool) -> Iterator[Problem]:
    """Yield a problem for each reason why these stages cannot be kept.

    Args:
        plan: the plan of the result. Its stages are those that can be kept.
        names: the names of the stages to keep. A user may have given a name that no stage has.
        is_file: whether the output is one file, not a folder.
    """
    stage_names = [stage.recipe.name for stage in plan.stages]
    for name in dict.fromkeys(names):
        if name not in stage_names:
            yield Problem(
                f"There is no stage {name!r} to keep",
                expected=", ".join(stage_names) or "a recipe of several documents, with names",
                found=f"--keep {name}",
                fix="name a document of the recipe, other than the last result"
                if stage_names
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
    folders = list(dict.fromkeys(names))
    if any(twin_of(name, folders[:number]) for number, name in enumerate(folders)):
        yield Problem(
            "Stages whose names differ only in case cannot both be kept",
            found=", ".join(names),
            fix="give them other names: some disks would have one folder for both",
        )
    if names and plan.adapter is not None and plan.adapter.highest:
        yield Problem(
            "Stages cannot be kept beside an adapter whose ranks its changes choose",
            expected="with --keep, an extraction without energy and sv_epsilon",
            found=f"--keep {names[0]}",
            fix="run the document of the stage as a recipe of its own, and name its output here; "
            "or leave out --keep",
        )
    if is_file and names:
        yield Problem(
            "Stages cannot be kept beside an output that is one file",
            expected="a folder as output, which has a place for them",
            found=f"--keep {names[0]}",
            fix="name a folder, or leave out --keep",
        )
