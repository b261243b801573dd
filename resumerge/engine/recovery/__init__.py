"""What is left after a crash, and what of it can be trusted.

`open_ledger` opens a ledger or restores it from its snapshot, `recovery` compares shards with the
ledger, `damaged_sources` finds units that were computed from damaged sources, `ownership` tells the
run's files from others, and `verify` reads a whole output again. Decides by checksums, never by
names or times. Imports `mirror_session`, `execute`, `resources` and the context.
"""
