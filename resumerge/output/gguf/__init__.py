"""The plan of a model that is written as one GGUF file. `sources/gguf/` reads such files.

`plan.py` converts the units of the model to units of the file. `tensors.py` determines the names,
row orders and types of the tensors. `hyperparameters.py` and `vocabulary.py` make the metadata,
`pieces.py` the scores of SentencePiece's pieces, and `header.py` the first bytes. The names of each
family are in `sources/gguf/families.py`, the names of pre-tokenizers in
`sources/gguf/pre_tokenizers.py`.
"""

from resumerge.output.gguf.plan import planned_recipe, problems_of_types, with_gguf

__all__ = ["planned_recipe", "problems_of_types", "with_gguf"]
