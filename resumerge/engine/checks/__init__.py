"""The checks that can refuse a run before anything is written: paths, disk, memory, drift.

`new_run` combines checks of a new run: `paths`, `disk`, `cluster` and `adapters` (their numbers
must be finite). Three are called apart from it: `accounts` refuses tensors that nothing uses,
`companions` reads the files that are copied beside the weights, and `memory` decides the budget and
the threads that fit in it. `drift` compares the recipe and sources of a run with their present
state. It uses `contents` to compare files of local models, and `fingerprint_diff` to describe the
differences between the plans' fingerprints. A check returns problems or raises `InputError` with
them; it changes nothing.
"""
