"""A second, durable place that sealed shards and snapshots of the ledger are copied to."""

from resumerge.mirror.lease import Lease
from resumerge.mirror.replicator import Manner, Mirror
from resumerge.mirror.stores.base import BOOKS, Place, PlaceError

__all__ = ["BOOKS", "Lease", "Manner", "Mirror", "Place", "PlaceError"]
