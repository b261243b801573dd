"""Every output architecture. Of several that fit, the first is made, as in mergekit-moe."""

from resumerge.planning.upcycling.deepseek import DEEPSEEK
from resumerge.planning.upcycling.mixtral import MIXTRAL
from resumerge.planning.upcycling.qwen2_moe import QWEN2_MOE
from resumerge.planning.upcycling.qwen3_moe import QWEN3_MOE

ARCHITECTURES = (MIXTRAL, DEEPSEEK, QWEN2_MOE, QWEN3_MOE)
