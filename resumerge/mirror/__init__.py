"""A mirror: a copy of a run on another store, made while the run merges.

This room contains the replicator (a thread beside the engine) and its writer, the lease, snapshots
of the ledger, the manifest and companions of a finished mirror, the state of a mirror, and the
check for damaged files. `stores/` contains one class for each kind of place that can hold a mirror.
`engine/mirror_session` reconciles a run with its mirror.

This room may import `ledger` and the rooms below it, but never `engine`.
"""

from resumerge.mirror.lease import Lease
from resumerge.mirror.replicator import ReplicationOptions, Replicator
from resumerge.mirror.stores.base import METADATA, Store, StoreError

__all__ = ["METADATA", "Lease", "ReplicationOptions", "Replicator", "Store", "StoreError"]
