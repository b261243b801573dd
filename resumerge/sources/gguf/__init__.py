"""Models in GGUF: their tensors under transformers' names, and a config.json from their metadata.

`families.py` has the names of each architecture, `model.py` makes the tensors, `config.py` and
`rope.py` the config. May import `sources/reader.py`, `quantisation/` and what lies below them.
"""

from resumerge.sources.gguf.model import from_gguf

__all__ = ["from_gguf"]
