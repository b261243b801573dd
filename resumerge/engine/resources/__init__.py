"""What a run takes of its machine: memory, locks, signals, errors of disks.

`governor` sets the batch size by the memory that is left; `lock` keeps two processes from one run;
`signals` turns SIGINT, SIGTERM and SIGHUP into a request to stop. Knows nothing of units and
shards; of a plan only what its estimate says. Imports rooms below engine/ only.
"""
