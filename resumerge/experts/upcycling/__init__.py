"""Upcycling: mixtures of experts made from dense models.

`planner.py` makes the plan, `choice.py` finds the output architecture that the models fit,
`dense_models.py` names the tensors of dense models and compares them with config.json,
`architectures/` describes each output architecture, and `gates/` makes the gates of routers.
"""

from resumerge.experts.upcycling.planner import MadeMixture, mix

__all__ = ["MadeMixture", "mix"]
