"""Output architectures: which models each takes, its names of tensors, fields of its config.json.

`output_architecture.py` says what an architecture has. A new one is one file, named in
`ARCHITECTURES`. `dense_defaults.py` is what a dense model's config.json leaves out.
"""

from resumerge.experts.upcycling.architectures.deepseek import DEEPSEEK
from resumerge.experts.upcycling.architectures.mixtral import MIXTRAL
from resumerge.experts.upcycling.architectures.qwen2_moe import QWEN2_MOE
from resumerge.experts.upcycling.architectures.qwen3_moe import QWEN3_MOE

ARCHITECTURES = (MIXTRAL, DEEPSEEK, QWEN2_MOE, QWEN3_MOE)
"""Every output architecture. If several fit, the first is made, as in mergekit-moe."""

__all__ = ["ARCHITECTURES"]
