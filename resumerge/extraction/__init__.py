"""Extraction: LoRA adapters from the difference between a model and its base, for peft.

`matching.py` pairs each tensor of the model with the base model's, and `differences.py` finds the
pairs that differ. `modules.py` infers the kind of a module from its tensors (a matrix, an
embedding, a convolution…). `choice.py` decides what the adapter contains of each module: a pair of
matrices (`Factors`), whole tensors, or nothing, with the reason. `planner.py` makes the adapter's
tensors, each of the highest rank that it may have, and `adapter_config.py` its adapter_config.json.
`Factors` (`tensors/adapters/factors.py`) finds the rank that the numbers need, which
`engine/lifecycle/compaction.py` lowers the tensors to. There is no table of architectures. The room
may import layout and the rooms below it.
"""

from resumerge.extraction.planner import MadeAdapter, extract

__all__ = ["MadeAdapter", "extract"]
