"""The main loop: compute blocks, write them, commit batches.

`scheduler` is the loop; read it first. `work_queue` chooses the next unit. `unit_feed` prepares the
unit with `passes`, and hands out its blocks. `uncommitted_shares` limits the bytes that each part
may use at once. `committer` syncs and journals batches in a separate thread. `steps` are computed
before the loop. `eviction` deletes downloads that are no longer needed. `local_computation` builds
these parts for the pending units of a plan: a run's whole plan or, in a task of a cluster, one
shard of it. `budget` decides threads, memory and device. The mirror matters here only because it
frees sealed shards.
"""
