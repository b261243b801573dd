"""A model as one GGUF file: what `sources/gguf/` reads, written.

`plan.py` makes the units of the file from those of the model, `tensors.py` their names, orders of
rows and types, `hyperparameters.py` and `vocabulary.py` the metadata, with
`pieces.py` for the scores of SentencePiece's, and `header.py` the first bytes. The names of each
family are said once, in `sources/gguf/families.py`, those of pre-tokenizers in
`sources/gguf/pre_tokenizers.py`.
"""

from resumerge.output.gguf.plan import planned_recipe, problems_of_types, with_gguf

__all__ = ["planned_recipe", "problems_of_types", "with_gguf"]
