"""The models that a plan writes: its result or the variants of a sweep, and kept stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from resumerge.output_path import STAGES
from resumerge.planning.plan import Plan, Shard, Unit


@dataclass(frozen=True)
class WrittenModel:
    """A model that a plan writes.

    Args:
        folder: the model's folder in the output, with a trailing slash; empty for the output
            itself.
        name: the name of the stage or the variant; empty for the output itself.
        plan: the plan of this model alone, with its own numbers of units and shards.
        units: the numbers of its units in the plan of all models.
    """

    folder: str
    name: str
    plan: Plan
    units: range

    @property
    def is_stage(self) -> bool:
        """Whether the model is the result of a kept stage."""
        return self.folder.startswith(f"{STAGES}/")


def models_of(plan: Plan) -> Iterator[WrittenModel]:
    """Yield every model that a plan writes.

    Kept stages are yielded first, so that the output is complete as soon as the files of the last
    model are written. In the plan, the units of stages come last.
    """
    kept_stages = [stage for stage in plan.stages if stage.recipe.name in plan.kept]
    result_unit_count = len(plan.units) - sum(len(stage.units) for stage in kept_stages)
    first_unit = result_unit_count
    for stage in kept_stages:
        units = range(first_unit, first_unit := first_unit + len(stage.units))
        yield WrittenModel(stage_folder(stage), stage.recipe.name, stage, units)
    first_unit = 0
    for name, variant in plan.variants.items():
        units = range(first_unit, first_unit := first_unit + len(variant.units))
        yield WrittenModel(f"{name}/", name, variant, units)
    if not plan.variants:
        shards = plan.shards[: len(plan.shards) - sum(len(stage.shards) for stage in kept_stages)]
        model_plan = replace(plan, units=plan.units[:result_unit_count], shards=shards, kept=())
        yield WrittenModel("", "", model_plan, range(result_unit_count))


def stage_folder(stage: Plan) -> str:
    """Return the folder of a stage's result in the output: ``stages/NAME/``."""
    return f"{STAGES}/{stage.recipe.name}/"


def with_models(plan: Plan, models: Iterable[tuple[str, Plan]]) -> Plan:
    """Return the plan with the units and shards of other plans after its own.

    Args:
        plan: the plan whose units and shards come first; of a sweep, a plan without any.
        models: pairs (folder in the output, plan). The folder is the prefix of all names.
    """
    units, shards = list(plan.units), list(plan.shards)
    for folder, model_plan in models:
        first_unit, first_shard = len(units), len(shards)
        units += (_moved_unit(unit, folder, first_unit, first_shard) for unit in model_plan.units)
        shards += (
            _moved_shard(shard, folder, first_unit, first_shard) for shard in model_plan.shards
        )
    return replace(plan, units=tuple(units), shards=tuple(shards))


def _moved_unit(unit: Unit, folder: str, first_unit: int, first_shard: int) -> Unit:
    return replace(
        unit,
        number=first_unit + unit.number,
        name=folder + unit.name,
        shard=first_shard + unit.shard,
        tensors={folder + name: shape for name, shape in unit.tensors.items()},
        dtypes={folder + name: dtype for name, dtype in unit.dtypes.items()},
    )


def _moved_shard(shard: Shard, folder: str, first_unit: int, first_shard: int) -> Shard:
    return replace(
        shard,
        number=first_shard + shard.number,
        name=folder + shard.name,
        first=first_unit + shard.first,
        last=first_unit + shard.last,
    )
