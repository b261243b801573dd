"""Everything that can refuse a run before anything is written: paths, disk, memory, drift.

`new_run` combines the checks of a new run: `paths`, `disk`, `memory`, `companions`, `cluster`, and
`adapters`, whose numbers must be finite. `drift` compares the recipe and sources of a run with
their present state; for that `contents` compares files of local models. A check returns problems,
or raises `InputError` with them, and changes nothing.
"""
