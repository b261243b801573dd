"""Upcycling: mixtures of experts made from dense models; a table for each output architecture.

`planner.py` has the order of the steps. A new architecture is one file, named in `registry.py`.
Imports plan, shards and what is below planning/.
"""

from resumerge.planning.upcycling.planner import plan_mixture

__all__ = ["plan_mixture"]
