"""The algebra of tensors. A tensor is a tree, whose leaves are stored in files or generated.

Each kind of tensor has its own small file, with its shape and dtype, its memory, its JSON, and the
computation of a range of its elements (`read`). Any tensor can be an operand of another tensor.

- `tensor.py` has the base class.
- `stored/` has the tensors in files.
- `generated/` has tensors that are filled, drawn or listed.
- `adapters/` has weights that an adapter changes, and adapters that a merge writes.
- `quantised/` has the weights that stored codes and scales represent, and the codes and scales in
  which weights are written.
- `merged.py` has results of a merge method, and `computed.py` results of a step that reads whole
  operands.
- `sliced.py` and `parts.py` take a part of a tensor, `stacked.py` joins tensors, and `tiled.py`
  joins the boxes that several training processes saved.
- `gathered.py` has an embedding with rows from several tensors, and `rows.py` the origin of each
  row.
- `rounded.py` rounds to another dtype, and `spilled.py` keeps a tensor in a scratch file.
- `evaluation.py` has the files, buffers and statistics that tensors are computed with, and
  `buffers.py` the buffers that a thread reuses.
- `target.py` has a tensor of the output, and the size of a block, which is part of the format.
- `dtypes.py` has the element types.

This room knows nothing about models.
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
