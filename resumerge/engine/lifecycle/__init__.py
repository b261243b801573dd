"""The stages of `run` and `resume`, in order; `pipeline` is the order.

`find`, `opening.pinned_plan`, `create_run` or `adopt`, then one `attempt`: it recovers,
executes, finishes and publishes. `finished` handles runs that are done, `import_run` one that comes
from its mirror. A stage takes the context and what the stages before it returned; it calls back
into none of them. `recomputation` computes blocks of a run again from its models.
Imports everything else in `engine/`.
"""
