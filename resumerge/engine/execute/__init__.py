"""The main loop: compute blocks, write them, commit batches.

`scheduler` is the loop; read it first. `work_queue` chooses the next unit. `unit_feed` prepares the
unit with `passes`, and hands out its blocks; `block_writer` computes, writes and hashes them in
each thread. `uncommitted_shares` limits the bytes that each part may use at once. `committer` syncs
and journals batches in a separate thread. `read_ahead` forecasts the ranges that are read from
streamed files, and `page_cache` and `eviction` drop the cached pages and the downloads that are no
longer needed. `steps` are computed before the loop.

`local_computation` builds these parts for the pending units of a plan: a run's whole plan or, in a
task of a cluster, one shard of it. `execution` is the context that they share. `computation` has
the base class of this computation and of that on a cluster. `budget` asks `engine/checks/memory.py`
and `engine/resources/device.py` for threads, memory and device. The mirror matters here only
because it frees sealed shards.
"""
