"""The phases of `run` and `resume`. `phases` calls them in order; read it first.

`find`, `opening.pinned_plan`, `create_run` or `adopt`, then one `attempt`: it recovers,
executes, finishes and publishes. `finished` handles runs that are done, `import_run` imports a run
from its mirror. A phase takes the context and the results of earlier phases, and calls no earlier
phase. `recomputation` computes blocks of a run again from its models.
Imports everything else in `engine/`.
"""
