"""Recovery after a crash: which of the files that are left can be trusted.

`open_ledger` opens a ledger or restores it from its snapshot. `recovery` compares shards with the
ledger. `published` and `uploaded` adopt shards that tasks of a cluster finished and no driver
journaled. `damaged_sources` finds units that were computed from damaged sources, and
`touched_sources` makes units pending whose local models have changed. `ownership` tells the run's
files from a user's, `backup` renames a user's file that is in the way, and `verify` reads a whole
output again.
Checksums decide whether bytes are right, never names or times. `Recovery._check_renamed` says which
files of shards the run may delete.
"""
