"""The phases of `run` and `resume`. `phases` calls them in order; read it first.

`find`, `opening.pinned_plan`, `create_run` or `adopt`, then one `attempt`, which recovers,
executes, finishes and publishes. `finished` handles runs that are done, `import_run` imports a run
from its mirror. Each phase receives the context and the results of earlier phases, and calls no
earlier phase. `recomputation` computes blocks of a run again from its models. This folder may
import every other folder of `engine/`.
"""
