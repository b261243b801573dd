"""The main loop: compute blocks, write them, commit batches.

`scheduler` is the loop; read it first. `work_queue` says which unit is next, `evaluator` computes
a block, `committer` syncs and journals batches in a thread of its own, `shard_files` are the output
files, and `disk_quota` and `downloads` say when there is space and which sources have arrived.
Knows nothing of the mirror or of a run's beginning and end. Imports `resources`, the reporter, and
rooms below engine/.
"""
