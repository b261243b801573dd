"""What a merge will need, from the plan alone: memory, disk, download and time.

`estimate` makes one pass over the units; `reads_of_files`, `memory` and `time`
count, each what it is about.
Nothing here measures the machine: `host/` does.
"""
