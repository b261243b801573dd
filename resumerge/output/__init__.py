"""The files beside the shards, which make the output folder a loadable model.

`model_files.py` yields all of these files, and `adapter_files.py` those of an output that is an
adapter. `config.py`, `token_ids.py`, `index.py` and `card.py` compute their contents, and
`companion_damage.py` checks copied files. `provenance.py` has the versions, options and pins that
the model card records, and reads them from a card. The contents depend only on the plan, so a
resumed run writes the same bytes. This room does not write files; the engine does. `tokenizers/`
makes the tokenizer's files. `gguf/` plans an output that is one GGUF file instead. This package
imports `planning` and the rooms below it.
"""

from resumerge.output.companion_damage import companion_damage
from resumerge.output.config import output_config
from resumerge.output.model_files import companions

__all__ = ["companion_damage", "companions", "output_config"]
