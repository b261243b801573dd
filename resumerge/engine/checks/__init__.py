"""Everything that can refuse a run before anything is written: paths, disk, memory, drift.

`new_run` combines the checks of a new run: `paths`, `disk`, `memory`, `companions`, `cluster`, and
`adapters`, whose numbers must be finite. `drift` compares a run's recipe and sources with what they
are now, `contents` what was read of them. A check returns problems, or raises `InputError` with
them, and changes nothing.
"""
