"""Everything that can refuse a run before anything is written: paths, disk, memory, drift.

`new_run` combines the checks of a new run; `drift` compares a run's recipe and sources with what
they are now. A check changes nothing: it returns problems, or raises `InputError` with them.
Imports `mirror_session`, `execute`, `resources` and the context; `lifecycle` imports it.
"""
