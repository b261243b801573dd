"""The files beside the shards that make the output folder a model which loads.

`model_files.py` lists them; `config.py`, `token_ids.py`, `tokenizer.py`, `index.py` and `card.py`
make one each. They depend on the plan alone, so that a resumed run writes the same bytes. Nothing
here writes into the output: the engine does. This package imports planning, sources and methods.
"""

from resumerge.output.model_files import companions

__all__ = ["companions"]
