"""Combination: several LoRA adapters as one, by a merge method, without their base model.

`adapter.py` reads the changes of one adapter, and `modules.py` matches the modules that several
adapters change. `factors.py` makes the combined matrices of a module, `whole.py` combines tensors
that adapters save whole, and `adapter_config.py` makes the config. `combine.py` plans the combined
adapter with these parts. `tensors/adapters/combined.py` has the arithmetic. The room may import
extraction, whose results are adapters too, and the rooms below it.
"""

from resumerge.combination.combine import ContradictingParameters, combine
from resumerge.combination.factors import Combining, Values

__all__ = ["Combining", "ContradictingParameters", "Values", "combine"]
