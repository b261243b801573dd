"""A merge on more machines, by Ray: the driver, and what a task does.

`ClusterComputation` takes the place of `LocalComputation` where ``--ray`` is given. It submits one
task for each shard that is not sealed, and journals what they return. A task merges a plan of one
shard (`shard_plan`) as any run is merged, in a folder of its own, and publishes the shard under its
final name: in the output's folder, which all machines see, or in the mirror's bucket (`exchange/`).
Whoever computes a shard computes the same bytes, so a task may be run any number of times,
anywhere.

`computation` begins and ends a merge, `driver` is its loop, `running` the tasks that are not over
and their heartbeats, `retries` what follows a failure, `journal` what becomes of a result,
`machines` what a task asks of one. `connection` is all that speaks to Ray, which is imported
nowhere else, and `probe` sees before whether it answers. `task` runs on a worker, with
`task_reporter` for its heartbeat and `outcomes` for what comes back. What must be alike there are
the plan's `planning.versions`.
"""
