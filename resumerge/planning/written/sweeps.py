"""Sweeps: several models from the same sources in one run, each in a folder of the output.

Each variant is planned as a separate recipe. The units are computed in the order in which the
sources are read. Bytes that were read for one variant are then still in memory for the other
variants.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from resumerge.errors import Problem
from resumerge.kernels.hashes import hash_block
from resumerge.planning.plan import Plan
from resumerge.planning.written.models import with_models
from resumerge.recipe import Recipe
from resumerge.recipe.average import AVERAGE
from resumerge.recipe.sweep import SWEEP
from resumerge.sizes import counted


def plan_of_results(recipe: Recipe, plans: Sequence[Plan]) -> Plan:
    """Return the plan of all results of a recipe: of its single result, or of a sweep's variants.

    Args:
        recipe: the whole recipe, with its variants if it has a sweep.
        plans: the plan of each result, in the order of the results.
    """
    if not recipe.variants:
        [plan] = plans
        return plan
    variants = dict(zip(recipe.variants, plans))
    common_notes = [note for note in plans[0].notes if all(note in plan.notes for plan in plans)]
    notes = [f"{counted(len(plans), 'model')} in one run: {', '.join(variants)}", *common_notes]
    for name, plan in variants.items():
        notes += (f"{name}: {note}" for note in plan.notes if note not in common_notes)
    sweep_plan = replace(
        plans[0],
        recipe=recipe,
        units=(),
        shards=(),
        variants=variants,
        notes=tuple(notes),
        reminders=tuple(dict.fromkeys(note for plan in plans for note in plan.reminders)),
    )
    return with_models(sweep_plan, ((f"{name}/", plan) for name, plan in variants.items()))


def problems_of_sweep(recipe: Recipe, *, is_file: bool) -> Iterator[Problem]:
    """Yield a problem if the variants of a recipe cannot be written. Called before planning.

    Args:
        recipe: the whole recipe; without variants there is no problem.
        is_file: whether the output is one file, not a folder.
    """
    if not recipe.variants:
        return
    if is_file:
        yield recipe.problem(
            "A sweep or an average makes several models, which one file has no place for",
            AVERAGE if AVERAGE in recipe.lines else SWEEP,
            expected="a folder as output, with a folder in it for each variant",
            found="the name of a file",
            fix="Name a folder; to have one variant as a file, run the recipe in its folder alone",
        )


def problems_of_equal_variants(plan: Plan) -> Iterator[Problem]:
    """Yield a problem for each variant whose model would equal that of an earlier variant."""
    first_of_key: dict[tuple[bytes, str | None], str] = {}
    for name, variant in plan.variants.items():
        units = [(unit.name, unit.dtype, unit.expression.as_json()) for unit in variant.units]
        key = hash_block(json.dumps(units).encode()), variant.chat_template
        first_name = first_of_key.setdefault(key, name)
        if first_name != name:
            yield plan.recipe.problem(
                "Two variants of the sweep are the same model",
                SWEEP,
                expected="values that change a tensor each",
                found=f"{first_name} and {name}",
                fix=f"Delete one of the two, or correct what the sweep varies: the method "
                f"{variant.method} does not read it there, or no tensor is meant by it",
            )
