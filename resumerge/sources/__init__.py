"""Input models: their files and tensors, and reading ranges of files.

`formats/` describes weight files (one class for each format), `remote/` models on the Hub and in
buckets, `adapters/` models with LoRA adapters, `adapter_programs/` the programs that write these,
`gguf/` the models of llama.cpp. Nothing here knows what is computed from the tensors. May import
`recipe/`, `resumerge.hub` and what lies below them.
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
