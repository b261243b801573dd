"""Recovery after a crash: which of the remaining files can be trusted.

`open_ledger` opens a ledger, or restores it from its snapshot. `recovery` compares shards with the
ledger. `published` and `uploaded` adopt shards that tasks of a cluster finished and no driver
journaled, and `swept_model` moves those of a finished sweep's model into a new run.
`damaged_sources` makes units pending that were computed from damaged sources. `touched_sources`
makes units pending whose local models have changed. `ownership` distinguishes the run's files from
the user's, `backup` renames a user's file that has the name of an output file, and `verify` reads a
whole output or mirror again: `checked_shard` compares a shard, `verification` is the result.
Checksums decide whether bytes are right; names and times never do. `Recovery._check_renamed`
documents which shard files the run may delete.
"""
