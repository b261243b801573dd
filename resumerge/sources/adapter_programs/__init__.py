"""The programs that write adapters: each one's config and tensors, read as if PEFT had saved them.

There is one file for each program: how its adapters are recognised, the names of their weight
files, and how their settings and tensors are read. `program.py` has the type of these facts, and
`config.py` the settings, which for most programs are those of PEFT's adapter_config.json.
"""

from resumerge.sources.adapter_programs.diffusers import DIFFUSERS
from resumerge.sources.adapter_programs.kohya import KOHYA
from resumerge.sources.adapter_programs.mlx import MLX
from resumerge.sources.adapter_programs.peft import PEFT
from resumerge.sources.adapter_programs.program import AdapterProgram

__all__ = ["PROGRAMS", "AdapterProgram"]

PROGRAMS: tuple[AdapterProgram, ...] = (MLX, KOHYA, DIFFUSERS, PEFT)
"""The programs, in order: the first that recognises an adapter wrote it. PEFT, last, recognises
every config that the others do not."""
