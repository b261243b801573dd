"""A merge on several machines, by Ray: the driver, and its tasks.

With ``--ray``, `ClusterComputation` takes the place of `LocalComputation`. It submits a task for
each shard that is not sealed, and journals the results. A task merges a plan of one shard
(`shard_plan`) in a folder of its own, and publishes the shard under its final name: in the output's
folder, which all machines see, or in the mirror's bucket (`exchange/`). Every machine computes the
same bytes of a shard, so a task may run any number of times, anywhere.

On the driver, `computation` begins and ends a merge, and `driver` is its loop. `running` has the
running tasks and their heartbeats, `retries` decides on the next task after a failure, `journal`
commits results, and `machines` has the resources of machines and requests. Only `connection`
imports and calls Ray; `probe` first asks whether a cluster answers. On a worker, `task` runs, with
`task_reporter` for its heartbeats and `outcomes` for its result. A worker must have the versions of
the plan (`planning.versions`).
"""
