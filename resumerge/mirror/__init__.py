"""A mirror: a copy of a run on another store, made while the run merges.

`replicator` is a thread beside the engine that chooses the next operation on the mirror.
`mirror_writer` carries it out: it uploads shards, `snapshots` of the ledger and, at the end,
`companions` and the `manifest`. `conflicts` protects the user's files in the mirror. `lease` lets
one machine at a time write; `lease_record` is the content of its file. `names` has the names of the
metadata files. `transfer` limits the rate, and `retrying` repeats an operation after a temporary
failure.

`state` reads whether a mirror has an unfinished run, a finished one, or other files, and
`damaged_files` compares its files with their recorded hashes. `stores/` contains one class for each
kind of place that can hold a mirror. `engine/mirror_session` reconciles a run with its mirror.

This room may import `ledger` and the rooms below it, but never `engine`.
"""

from resumerge.mirror.lease import Lease
from resumerge.mirror.replicator import ReplicationOptions, Replicator
from resumerge.mirror.stores.base import METADATA, Store, StoreError

__all__ = ["METADATA", "Lease", "ReplicationOptions", "Replicator", "Store", "StoreError"]
