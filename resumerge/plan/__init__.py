"""The plan of a merge: units, shards, fingerprint, estimate.

The package has the name of a command's twin in Python: called, ``resumerge.plan(…)`` is that twin,
whether this package or the function was imported first.
"""

import sys
from types import ModuleType
from typing import Any

from resumerge.plan.check_recipe import check_recipe
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
    "check_recipe",
    "estimate",
    "fingerprint",
    "fingerprint_parts",
    "make_plan",
]


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        from resumerge import api

        return api.plan(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
