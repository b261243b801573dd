"""The shards of an output: files, disk space, checksums, and records of shards from a cluster."""
