"""The main loop: compute blocks, write them, commit batches.

`scheduler` is the loop; read it first. `work_queue` says which unit is next, `unit_feed` hands out
its blocks and has `passes` prepare it ahead of them; `uncommitted_shares` says how much each may
have at once. `committer` syncs and journals batches in a thread of its own, `steps` are computed
before the loop, and `eviction` deletes downloads that nothing needs any more.
`local_computation` builds all this for the pending units of a plan: a run's whole plan, or one
shard of it in a task of a cluster. `budget` decides threads, memory and device. Knows of the mirror
only that it frees sealed shards.
"""
