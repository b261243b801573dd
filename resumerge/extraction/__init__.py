"""Extraction: LoRA adapters made of how a model differs from its base, as peft loads them.

`matching.py` finds the base model's tensor for each of the model's, and `differences.py` which of
them differ. `modules.py` says what a module is by
its tensors (a matrix, an embedding, a convolution…), and `choice.py` what becomes of each: a pair
of `Factors`, a tensor that is saved whole, or nothing, for a reason. `planner.py` makes these, and
`adapter_config.py` adapter_config.json. There is no table of architectures. May import layout and
what lies below it.
"""

from resumerge.extraction.planner import MadeAdapter, extract

__all__ = ["MadeAdapter", "extract"]
