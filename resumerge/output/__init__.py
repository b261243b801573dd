"""The files beside the shards, with which the output folder is a model that loads.

`model_files.py` lists these files. `config.py`, `token_ids.py`, `index.py` and `card.py` make one
each, and `companion_damage.py` checks copied files. The files depend on the plan alone, so that a
resumed run writes the same bytes. The engine writes them into the output; nothing here does. The
tokenizer's files are made in `tokenizers/`. `gguf/` makes a whole model as one file instead. This
package imports planning, tokenizers, sources and methods.
"""

from resumerge.output.companion_damage import companion_damage
from resumerge.output.config import output_config
from resumerge.output.model_files import companions

__all__ = ["companion_damage", "companions", "output_config"]
