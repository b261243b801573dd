"""The algebra of tensors: what a tensor is computed from, as a tree whose leaves lie in files.

One small file for each kind of tensor: its shape and dtype, its memory, its JSON, and how a range
of it is computed (`read`). Any tensor can be an operand of another. `stored/` has the tensors that
lie in files, `generated/` tensors that are filled, drawn or listed, `adapters/` weights that an
adapter changes, and `quantised/` both the weights that codes and scales stand for and the codes
and scales that weights are written as. `evaluation.py` has the files, buffers and statistics that
tensors are computed with. `target.py` has the size of a block, which is part of the format.
Nothing here knows of models.
"""

from resumerge.tensors.adapters.adapted import Adapted
from resumerge.tensors.adapters.both_matrices import BothMatrices
from resumerge.tensors.adapters.combined import AdapterPair, Combined
from resumerge.tensors.adapters.factors import Factors
from resumerge.tensors.computed import Computed, Step, steps_of
from resumerge.tensors.gathered import Gathered
from resumerge.tensors.merged import Merged
from resumerge.tensors.quantised.dequantised import Dequantised
from resumerge.tensors.quantised.encoded import Encoded
from resumerge.tensors.quantised.halved import Halved
from resumerge.tensors.quantised.interleaved import Interleaved
from resumerge.tensors.quantised.packed_blocks import PackedBlocks
from resumerge.tensors.quantised.quantised import Quantised
from resumerge.tensors.quantised.repacked import Repacked
from resumerge.tensors.quantised.transposed import Transposed
from resumerge.tensors.rounded import Rounded, rounded_input, rounded_once
from resumerge.tensors.sliced import Sliced
from resumerge.tensors.spilled import ScratchFile, Spilled, spilled_in
from resumerge.tensors.stacked import Stacked
from resumerge.tensors.stored import Stored, stored_in, with_stored
from resumerge.tensors.tensor import Tensor
from resumerge.tensors.tiled import Tiled

__all__ = [
    "Adapted",
    "AdapterPair",
    "BothMatrices",
    "Combined",
    "Computed",
    "Dequantised",
    "Encoded",
    "Factors",
    "Gathered",
    "Halved",
    "Interleaved",
    "Merged",
    "PackedBlocks",
    "Quantised",
    "Repacked",
    "Rounded",
    "ScratchFile",
    "Sliced",
    "Spilled",
    "Stacked",
    "Step",
    "Stored",
    "Tensor",
    "Tiled",
    "Transposed",
    "rounded_input",
    "rounded_once",
    "spilled_in",
    "steps_of",
    "stored_in",
    "with_stored",
]
