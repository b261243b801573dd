"""A merge on several machines, by Ray: the driver, and its tasks.

With ``--ray``, `ClusterComputation` replaces `LocalComputation`. It submits a task for each shard
that is not sealed, and journals the results. A task merges a plan of one shard (`shard_plan`) in
its own folder. It publishes the shard under its final name: in the output's folder, which all
machines see, or in the mirror's bucket (`exchange/`). Every machine computes the same bytes of a
shard, so a task may run any number of times, on any machine.

On the driver, `computation` begins and ends a merge, and `driver` contains the loop in between.
`running` holds the running tasks and reads their heartbeats, `retries` decides on the next task
after a failure, `journal` commits results, and `machines` describes the resources of machines and
requests. `probe` checks that a cluster answers, and `connection` makes the driver's calls to Ray.
On a worker, `task` computes the shard, `task_reporter` sends heartbeats, and `outcomes` defines the
results. A worker must have the versions that the plan was made with (`planning.versions`).
"""
