"""Upcycling: mixtures of experts made from dense models.

`planner.py` has the order of the steps, `choice.py` finds the output architecture that the models
fit, `architectures/` has a table for each, and `gates/` is what routers are made of. Imports plan,
shards and what is below planning/.
"""

from resumerge.planning.upcycling.planner import plan_mixture

__all__ = ["plan_mixture"]
