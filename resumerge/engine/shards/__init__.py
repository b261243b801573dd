"""The shards of an output: their files, disk space, checksums, and records from cluster tasks.

`shard_files` creates and writes the files, or links those that would be copies of weight files
(`hard_links`). `space_reservation` reserves their disk space. `checksums` hashes blocks and units
and finds blocks that differ, and `sealing` gives a complete shard its final name. `shard_record`
describes a shard that a task of a cluster computed.
"""
