"""The programs that write adapters. The adapters of each are read as if PEFT had saved them.

Each program has a file, which recognises its adapters, lists the names of their weight files, and
reads their settings and tensors. `program.py` has the type of a program, and `config.py` the type
of the settings, with the parser of PEFT's adapter_config.json.
"""

from resumerge.sources.adapter_programs.diffusers import DIFFUSERS
from resumerge.sources.adapter_programs.kohya import KOHYA
from resumerge.sources.adapter_programs.mlx import MLX
from resumerge.sources.adapter_programs.peft import PEFT
from resumerge.sources.adapter_programs.program import AdapterProgram

__all__ = ["PROGRAMS", "AdapterProgram"]

PROGRAMS: tuple[AdapterProgram, ...] = (MLX, KOHYA, DIFFUSERS, PEFT)
"""The programs in the order in which they are tried: the first that recognises an adapter wrote it.
PEFT is last, because it recognises every config."""
