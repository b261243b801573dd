"""The main loop: compute blocks, write them, commit batches.

`scheduler` is the loop; read it first. `work_queue` says which unit is next, `evaluation` computes
a block, `committer` syncs and journals batches in a thread of its own, `source_watch` sees to it
that no source changes meanwhile, `shard_files` are the output files, `space_reservation` gives them
their space on the disk, and `eviction` deletes downloads that nothing needs any more. Knows of the
mirror only that it frees sealed shards. Imports `resources`, the reporter, and rooms below engine/.
"""
