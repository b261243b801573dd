"""Makes the plan of a merge: units, shards, fingerprint and estimate.

`planner.py` has the order of the steps, `plan.py` the result. Problems are collected and raised
together; `stacks/` checks layers that slices choose. Nothing here reads weights, except small
tensors of whole numbers. This room imports tokenizers, layout and the rooms below.

The package is not named ``plan``: importing it would replace the function `resumerge.plan`.
"""

from resumerge.planning.check_recipe import check_recipe, read_recipe
from resumerge.planning.estimates.estimate import Estimate, estimate
from resumerge.planning.fingerprint import changes, fingerprint, fingerprint_parts
from resumerge.planning.plan import NUMERICS, Plan, Shard, Unit, Unshared
from resumerge.planning.planner import make_plan

__all__ = [
    "NUMERICS",
    "Estimate",
    "Plan",
    "Shard",
    "Unit",
    "Unshared",
    "changes",
    "check_recipe",
    "estimate",
    "fingerprint",
    "fingerprint_parts",
    "make_plan",
    "read_recipe",
]
