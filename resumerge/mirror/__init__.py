"""A second, durable place that sealed shards and snapshots of the ledger are copied to."""

from resumerge.mirror.lease import Lease
from resumerge.mirror.replicator import ReplicationOptions, Replicator
from resumerge.mirror.stores.base import METADATA, Store, StoreError

__all__ = ["METADATA", "Lease", "ReplicationOptions", "Replicator", "Store", "StoreError"]
