"""Estimates from the plan alone: the memory, disk space, downloads and time of a merge.

`estimate` makes one pass over the units, and passes each unit to the counters in `reads_of_files`,
`memory` and `time`. `host/` measures the machine; this folder does not.
"""
