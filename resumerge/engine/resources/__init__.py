"""What a run takes of its machine: memory, page cache, locks, signals, errors of disks.

`governor` sets the batch size by the memory that is left; `lock` keeps two processes from one run;
`signals` turns SIGINT, SIGTERM and SIGHUP into a request to stop. Knows nothing of plans or units.
Imports rooms below engine/ only.
"""
