"""Models in GGUF: tensors under transformers' names; config and tokenizer from their metadata.

`families.py` has the names of each architecture, `model.py` makes the tensors, `config.py` and
`rope.py` the config, `tokenizer.py` and `pre_tokenizers.py` the tokenizer, which `contained.py`
makes when it is read. May import `sources/reader.py`, `sources/remote/files.py`, `quantisation/`
and what lies below them.
"""

from resumerge.sources.gguf.model import from_gguf

__all__ = ["from_gguf"]
