"""Estimates from the plan alone: the memory, disk space, downloads and time of a merge.

`estimate` makes one pass over the units, and hands each to the counters in `reads_of_files`,
`memory` and `time`. Nothing here measures the machine: `host/` does.
"""
