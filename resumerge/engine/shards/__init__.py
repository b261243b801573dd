"""The shards of an output: their files, their space on the disk, their checksums and records."""
