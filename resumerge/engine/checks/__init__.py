"""The checks that can refuse a run before anything is written: paths, disk, memory, drift.

`new_run` combines checks of a new run: `paths`, `disk`, `cluster` and `adapters` (their numbers
must be finite). `memory` and `companions` are called apart from it. `drift` compares the recipe and
sources of a run with their present state, and uses `contents` to compare files of local models. A
check returns problems or raises `InputError` with them; it changes nothing.
"""
