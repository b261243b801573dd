"""A second, durable place that sealed shards and snapshots of the ledger are copied to."""

from resumerge.mirror.lease import Lease
from resumerge.mirror.mirror import Manner, Mirror
from resumerge.mirror.place import BOOKS, Place, PlaceError

__all__ = ["BOOKS", "Lease", "Manner", "Mirror", "Place", "PlaceError"]
