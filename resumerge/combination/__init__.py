"""Combination: several LoRA adapters as one, by a merge method, without their base model.

`adapter.py` reads the changes of one adapter, and `modules.py` matches the modules that several
adapters change. `factors.py` makes the combined matrices of a module, `whole.py` combines tensors
that adapters save whole, and `adapter_config.py` makes the config. `combine.py` plans the combined
adapter of these. The arithmetic is that of `tensors/adapters/combined.py`. May import extraction,
whose results are adapters too, and what lies below it.
"""

from resumerge.combination.combine import ContradictingParameters, combine
from resumerge.combination.factors import Combining, Values

__all__ = ["Combining", "ContradictingParameters", "Values", "combine"]
