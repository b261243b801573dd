"""Every output architecture. Of several that fit, the first is made, as in mergekit-moe."""

from resumerge.planning.upcycling.architectures.deepseek import DEEPSEEK
from resumerge.planning.upcycling.architectures.mixtral import MIXTRAL
from resumerge.planning.upcycling.architectures.qwen2_moe import QWEN2_MOE
from resumerge.planning.upcycling.architectures.qwen3_moe import QWEN3_MOE

ARCHITECTURES = (MIXTRAL, DEEPSEEK, QWEN2_MOE, QWEN3_MOE)
