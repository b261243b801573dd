"""A mirror: the copy of a run, made while it merges, that outlives the machine.

Here are the replicator (a thread beside the engine) and its writer, the lease, snapshots of the
ledger, the manifest of a finished mirror and the files beside its shards, the state of any mirror,
and what is damaged in it. `stores/` has the places that a mirror can be in. How a run is reconciled
with its mirror is in `engine/mirror_session`.

This room may import `ledger`, and what is below it; never `engine`.
"""

from resumerge.mirror.lease import Lease
from resumerge.mirror.replicator import ReplicationOptions, Replicator
from resumerge.mirror.stores.base import METADATA, Store, StoreError

__all__ = ["METADATA", "Lease", "ReplicationOptions", "Replicator", "Store", "StoreError"]
