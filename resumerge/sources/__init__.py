"""Input models: their files and tensors, and reading ranges of files.

`types.py` has `Source`, a model with the place of every tensor in its files. `open.py` opens one by
its reference: `local.py` opens models on this machine, `remote/` models on the Hub and in buckets,
`adapters/` models with LoRA adapters, and `gguf/` models of llama.cpp. `adapter_programs/`
describes the programs that write adapters.

`model_files.py` has the steps that open a model from local or remote files. `index.py` finds the
weight files and the tensors in them, `checkpoint_files.py` chooses weight files if there is no
config.json, and `formats/` reads their headers (one class for each format). `pipelines.py` and
`sentence_modules.py` read models of several folders, from diffusers and sentence-transformers.
`json_object.py` reads JSON within limits, and `companions.py` recognises the files beside the
weights.

`quantised.py` replaces codes and scales by the weights that they represent. `tied_names.py` knows
which names a model has for one tensor, and `tied_weights.py` finds tensors that the files lack.
`left_out.py` has the record of a tensor that is not used. `reader.py` reads ranges of files. No
module here depends on the use of the tensors. May import `quantisation/` and the rooms below it.
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
