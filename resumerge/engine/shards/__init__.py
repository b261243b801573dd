"""The shards of an output: their files, disk space, checksums, and records from cluster tasks."""
