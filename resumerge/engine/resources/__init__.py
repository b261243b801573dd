"""The resources of the machine that a run uses: memory, device, locks, signals, errors of disks.

`governor` sets the uncommitted limit from the free memory. `lock` keeps two processes from working
on one run. `signals` turns SIGINT, SIGTERM and SIGHUP into a request to stop. This folder knows no
units and shards, and of a plan only its estimate. It imports only rooms below engine/.
"""
