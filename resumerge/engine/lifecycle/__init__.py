"""The phases of `run` and `resume`. `phases` calls them in order; read it first.

`find`, `opening.pinned_plan`, `create_run` or `adopt`, then one `attempt`, which recovers,
executes, finishes and publishes. It also drops the zero directions of an adapter (`compaction`),
and writes the files beside the shards (`companions`). `finished` handles runs that are done, and
`fetch_model` copies a finished model from its mirror; `import_run` imports a run from its mirror.
Each phase receives the context and the results of earlier phases, and calls no earlier phase.

`session` has the entry points of the commands that merge, and `bucket_output` finds the working
folder of an output in a bucket. `abandon_output` deletes the files and the ledger of a run, and
`old_runs` finds and removes the runs of ``resumerge clean``. `recomputation` computes blocks of a
run again from its models. This folder may import every other folder of `engine/`.
"""
