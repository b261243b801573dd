"""Input models: their files and tensors, and reading ranges of files.

`formats/` reads the headers of weight files (one class for each format). `remote/` opens models on
the Hub and in buckets, `adapters/` models with LoRA adapters, `gguf/` models of llama.cpp.
`adapter_programs/` describes the programs that write adapters. No module here depends on the use
of the tensors. May import `recipe/`, `resumerge.hub` and the rooms below them.
"""

from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.open import open_source
from resumerge.sources.remote.files import fetch, list_companions
from resumerge.sources.types import Source, SourceFile

__all__ = [
    "MetadataCache",
    "Source",
    "SourceFile",
    "fetch",
    "list_companions",
    "open_source",
]
