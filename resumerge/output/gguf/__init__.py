"""Writes a model as one GGUF file, which `sources/gguf/` reads.

`plan.py` makes the units of the file from those of the model, and `tensors.py` the names, row
orders and types of its tensors. `hyperparameters.py` and `vocabulary.py` make the metadata
(`pieces.py`: the scores of SentencePiece's pieces), and `header.py` the first bytes. The names of
each family are in `sources/gguf/families.py`, the names of pre-tokenizers in
`sources/gguf/pre_tokenizers.py`.
"""

from resumerge.output.gguf.plan import planned_recipe, problems_of_types, with_gguf

__all__ = ["planned_recipe", "problems_of_types", "with_gguf"]
