"""Models in GGUF: tensors under transformers' names, and config and tokenizer from the metadata.

`families.py` has the names of each architecture. `model.py` makes the tensors, `config.py` and
`rope.py` the config, `tokenizer.py` and `pre_tokenizers.py` the tokenizer. `contained.py` makes the
tokenizer's files when they are read. `metadata.py` checks the values of the metadata. May import
`sources/reader.py`, `sources/remote/files.py`, `quantisation/` and the rooms below them.
"""

from resumerge.sources.gguf.model import from_gguf

__all__ = ["from_gguf"]
