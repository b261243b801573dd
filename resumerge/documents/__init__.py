"""Documents: facts on runs, plans, caches and methods, as data for ``--json`` and for displays.

The functions read facts from ledgers, mirrors, plans and declarations, and return dictionaries and
dataclasses. They do not print or draw; `resumerge.ui` renders documents. Start at `status` (one run
or all runs), `history` (samples over time) and `plan_report` (a merge that has not begun). Two
modules also do the work of their commands: `try_model` runs a model, and `cache_check` downloads
what it repairs.
"""
