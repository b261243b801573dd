"""Upcycling: mixtures of experts made from dense models.

`planner.py` has the order of the steps, `choice.py` finds the output architecture that the models
fit, `architectures/` has a table for each, and `gates/` makes the routers' gates.
"""

from resumerge.experts.upcycling.planner import MadeMixture, mix

__all__ = ["MadeMixture", "mix"]
