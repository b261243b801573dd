"""What is left after a crash, and what of it can be trusted.

`open_ledger` opens a ledger or restores it from its snapshot, `recovery` compares shards with the
ledger, `published` and `uploaded` adopt shards that tasks of a cluster finished and nobody
journaled, `damaged_sources` finds units that were computed from damaged sources, `touched_sources`
makes those pending that were computed from what local models no longer have, `ownership` tells the
run's files from others, `backup` renames these, and `verify` reads a whole output again.
Whether bytes are right is decided by checksums, never by names or times; by which rule a shard's
file is ours to delete is said at `Recovery._check_renamed`.
"""
