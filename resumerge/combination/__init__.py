"""Combination: several LoRA adapters as one, by a merge method, without their base model.

`adapter.py` reads what one adapter changes, `modules.py` brings together what all of them change,
`factors.py` says what becomes of each module, `whole.py` of what adapters have whole, and
`adapter_config.py` makes the config. `combine.py` puts them together. The arithmetic is that of
`tensors/adapters/combined.py`. May import extraction, whose results are adapters too, and what
lies below it.
"""

from resumerge.combination.combine import ContradictingParameters, combine
from resumerge.combination.factors import Combining, Values

__all__ = ["Combining", "ContradictingParameters", "Values", "combine"]
