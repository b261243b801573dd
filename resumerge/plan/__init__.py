"""The plan of a merge: units, shards, fingerprint, estimate."""

from resumerge.plan.estimate import Estimate, estimate
from resumerge.plan.fingerprint import changes, fingerprint, fingerprint_parts
from resumerge.plan.model import BLOCK, NUMERICS, Expression, Operand, Plan, Shard, Unit
from resumerge.plan.planner import make_plan

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
    "estimate",
    "fingerprint",
    "fingerprint_parts",
    "make_plan",
]
