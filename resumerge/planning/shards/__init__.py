"""Which tensor of the output is in which file, and where: `packing`, or `source_files` of a model."""

from resumerge.planning.shards.packing import MODEL, pack, parts_of
from resumerge.planning.shards.source_files import pack_as_source

__all__ = ["MODEL", "pack", "pack_as_source", "parts_of"]
