"""The machine's resources that a run uses: memory, device, locks, signals; errors of disks.

`governor` sets the uncommitted limit from the free memory. `allocator` lets glibc reuse freed
memory, and `collector` pauses Python's garbage collector. `device` chooses the device on which
torch computes. `lock` keeps two processes from working on one run. `signals` turns SIGINT, SIGTERM
and SIGHUP into a request to stop; `wakeup` ends waits of the main thread for them. `temporary` has
temporary folders that the next process deletes after a kill. `open_files` raises the limit of open
files. `resource_errors` makes errors of disks, open files and memory stop a run so that it can be
resumed; `allocation_errors` recognises those of memory. This folder uses neither units nor shards,
and only the estimate of a plan. It imports only rooms below engine/.
"""
