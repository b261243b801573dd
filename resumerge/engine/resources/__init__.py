"""The machine's resources that a run uses: memory, device, locks, signals; errors of disks.

`governor` sets the uncommitted limit from the free memory. `lock` keeps two processes from working
on one run. `signals` turns SIGINT, SIGTERM and SIGHUP into a request to stop. This folder uses
neither units nor shards, and only the estimate of a plan. It imports only rooms below engine/.
"""
