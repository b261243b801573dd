"""Output architectures: the models they are made of, names of tensors, fields of config.json.

`output_architecture.py` defines the description of an architecture. Each architecture is described
in its own file and listed in `ARCHITECTURES`. `dense_defaults.py` holds the defaults of fields that
a dense model's config.json may omit.
"""

from resumerge.experts.upcycling.architectures.deepseek import DEEPSEEK
from resumerge.experts.upcycling.architectures.mixtral import MIXTRAL
from resumerge.experts.upcycling.architectures.qwen2_moe import QWEN2_MOE
from resumerge.experts.upcycling.architectures.qwen3_moe import QWEN3_MOE

ARCHITECTURES = (MIXTRAL, DEEPSEEK, QWEN2_MOE, QWEN3_MOE)
"""Every output architecture. If several fit the models, the first is chosen, as in mergekit-moe."""

__all__ = ["ARCHITECTURES"]
