"""The plan of a merge: units, shards, fingerprint, estimate.

Not named ``plan``: ``resumerge.plan(…)`` is the command's twin in Python, and importing a package
of that name would put the package in its place.
"""

from resumerge.planning.check_recipe import check_recipe, read_recipe
from resumerge.planning.estimates.estimate import Estimate, estimate
from resumerge.planning.fingerprint import changes, fingerprint, fingerprint_parts
from resumerge.planning.plan import BLOCK, NUMERICS, Expression, Operand, Plan, Shard, Unit
from resumerge.planning.planner import make_plan

__all__ = [
    "BLOCK",
    "NUMERICS",
    "Estimate",
    "Expression",
    "Operand",
    "Plan",
    "Shard",
    "Unit",
    "changes",
    "check_recipe",
    "estimate",
    "fingerprint",
    "fingerprint_parts",
    "make_plan",
    "read_recipe",
]
