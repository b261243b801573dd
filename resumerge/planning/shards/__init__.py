"""The places of the output's tensors in its files.

`packing` packs them anew, and `source_files` as in a model's files.
"""

from resumerge.planning.shards.packing import MODEL, pack, parts_of
from resumerge.planning.shards.source_files import pack_as_source

__all__ = ["MODEL", "pack", "pack_as_source", "parts_of"]
