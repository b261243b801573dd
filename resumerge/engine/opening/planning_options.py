"""The options that a run is planned with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resumerge.engine.opening.stage_models import unshared_of
from resumerge.options import SEED, Options
from resumerge.planning import Unshared
from resumerge.planning.stage_results.spilled import Materialize


@dataclass(frozen=True, kw_only=True)
class PlanningOptions:
    """The options that planning reads: those of the command, or else those of the run.

    They are the options that are `Kept.PLANNED`, and ``--materialize``.

    Args:
        seed: the seed of the random masks.
        shard_size: largest shard in bytes; None if no size was given.
        unshared: the treatment of tensors that only some models have.
        keep: the names of the stages whose results are written.
        materialize: whether results of stages are spilled to disk.
    """

    seed: int
    shard_size: int | None
    unshared: Unshared
    keep: Sequence[str]
    materialize: Materialize

    @classmethod
    def of(cls, options: Options, created_with: Mapping[str, Any]) -> PlanningOptions:
        """Return the options of the plan.

        Args:
            options: the options of the command, which take precedence.
            created_with: the options that the run was created with; empty for a new run.
        """
        materialize = options.materialize or created_with.get("materialize") or Materialize.AUTO
        return cls(
            seed=created_with.get("seed", SEED) if options.seed is None else options.seed,
            shard_size=options.shard_size or created_with.get("shard_size"),
            unshared=unshared_of(vars(options)) or unshared_of(created_with) or Unshared.REFUSED,
            keep=options.keep or created_with.get("keep") or (),
            materialize=Materialize(materialize),
        )
