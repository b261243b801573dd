"""The files beside the shards that make the output folder a model which loads.

`model_files.py` lists them; `config.py`, `token_ids.py`, `index.py` and `card.py` make one each;
`companion_damage.py` looks at those that are copied. They depend on the plan alone, so that a
resumed run writes the same bytes. Nothing here writes into the output: the engine does. The
tokenizer's files are made in `tokenizers/`. `gguf/` writes a whole model as one file instead. This
package imports planning, tokenizers, sources and methods.
"""

from resumerge.output.companion_damage import companion_damage
from resumerge.output.config import output_config
from resumerge.output.model_files import companions

__all__ = ["companion_damage", "companions", "output_config"]
