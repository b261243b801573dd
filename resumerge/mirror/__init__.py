"""A mirror: a copy of a run, made while it merges, that outlives the machine.

This room has the replicator (a thread beside the engine) and its writer, the lease, snapshots of
the ledger, the manifest and the companions of a finished mirror, the state of any mirror, and the
search for damaged files. `stores/` has the kinds of places that a mirror can be in.
`engine/mirror_session` reconciles a run with its mirror.

This room may import `ledger` and the rooms below it, but never `engine`.
"""

from resumerge.mirror.lease import Lease
from resumerge.mirror.replicator import ReplicationOptions, Replicator
from resumerge.mirror.stores.base import METADATA, Store, StoreError

__all__ = ["METADATA", "Lease", "ReplicationOptions", "Replicator", "Store", "StoreError"]
